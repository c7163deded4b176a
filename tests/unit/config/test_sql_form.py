"""The SQL form of a job file."""

import pytest

from tidegate.config.load import Format, load_text, read_text
from tidegate.config.sql_form import parse_sql
from tidegate.model.job import JobMode
from tidegate.model.problem import Severity

SOURCE = "CREATE TABLE src WITH ('connector'='FakeSource', 'type'='source', 'row.num'='5');\n"
SINK = "CREATE TABLE snk WITH ('connector'='Console', 'type'='sink');\n"


def problems(text):
    return [(problem.at.line, problem.message) for problem in parse_sql(text, "job.sql").problems]


def test_a_whole_file_becomes_env_source_transform_and_sink():
    text = """/* a licence */
/* config
env {
  job.mode = "STREAMING"
}
*/
-- where it comes from
CREATE TABLE src (id INT, name VARCHAR(10)) WITH (
  'connector' = 'FakeSource',  -- the plugin
  'type' = 'source',
  'schema' = '{
     fields {
       id = "int"
       name = string
     }
  }',
  'rows' = '[ { fields = [1, "O''Hara; x"], kind = INSERT } ]'
);
create table tmp as select id, upper(name) as name from src where name <> ';' ;
INSERT INTO snk SELECT * FROM tmp;
CREATE TABLE snk WITH ('connector' = 'Jdbc', 'type' = 'sink', 'query' = 'select ''x'' from t',
  'delimiter' = '\\t');
"""
    spec = load_text(text, "job.sql", Format.SQL)
    assert spec.env.mode is JobMode.STREAMING
    [source] = spec.sources
    assert (source.plugin, source.output) == ("FakeSource", "src")
    assert source.options["schema"] == {"fields": {"id": "int", "name": "string"}}
    assert source.options["rows"] == [{"fields": [1, "O'Hara; x"], "kind": "INSERT"}]
    assert source.locate(("schema", "fields", "name")).line == 14
    first, second = spec.transforms
    assert (first.plugin, first.inputs, first.output) == ("Sql", ("src",), "tmp")
    assert first.options["query"] == "select id, upper(name) as name from src where name <> ';'"
    assert (second.inputs, second.output, second.options["query"]) == (
        ("tmp",),
        "tmp__temp1",
        "SELECT * FROM tmp",
    )
    [sink] = spec.sinks
    assert (sink.plugin, sink.inputs, sink.at.line) == ("Jdbc", ("tmp__temp1",), 21)
    assert sink.options["query"] == "select 'x' from t"
    assert sink.options["delimiter"] == "\t"


def test_inserting_a_table_by_its_name_makes_no_transform():
    spec = load_text(SOURCE + SINK + "INSERT INTO snk SELECT src;", "job.sql", Format.SQL)
    assert spec.transforms == ()
    assert spec.sinks[0].inputs == ("src",)


def test_two_inserts_into_one_table_are_two_sinks_with_their_own_temporary_names():
    spec = load_text(
        SOURCE + SINK + "INSERT INTO snk SELECT a FROM src; INSERT INTO snk SELECT b FROM `src`",
        "job.sql",
        Format.SQL,
    )
    assert [sink.inputs for sink in spec.sinks] == [("src__temp1",), ("src__temp2",)]


def test_comments_inside_of_a_select_are_removed_from_its_query():
    spec = load_text(
        SOURCE + SINK + "INSERT INTO snk SELECT a, -- one\n b /* two */ FROM src;",
        "job.sql",
        Format.SQL,
    )
    assert spec.transforms[0].options["query"] == "SELECT a, b FROM src"


def test_from_inside_of_a_function_is_not_the_table():
    spec = load_text(
        SOURCE + SINK + "INSERT INTO snk SELECT EXTRACT(YEAR FROM d) FROM src",
        "job.sql",
        Format.SQL,
    )
    assert spec.transforms[0].inputs == ("src",)


def test_variables_work_in_options_and_in_blocks():
    text = (
        "CREATE TABLE src WITH ('connector'='A', 'type'='source', 'x'='${v}', 'y'='{ z = ${v} }');"
        + SINK
        + "INSERT INTO snk SELECT src"
    )
    options = load_text(text, "job.sql", Format.SQL, variables={"v": "1"}).sources[0].options
    assert (options["x"], options["y"]) == ("1", {"z": "1"})


def test_sink_without_an_insert_is_ignored_with_a_warning():
    other = "CREATE TABLE lonely WITH ('connector'='Console', 'type'='sink');\n"
    reading = read_text(SOURCE + SINK + other + "INSERT INTO snk SELECT src", "job.sql", Format.SQL)
    assert [(p.severity, p.at.line) for p in reading.problems] == [(Severity.WARNING, 3)]
    assert len(reading.spec.sinks) == 1


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("DROP TABLE x;", 1, "DROP"),
        ("CREATE TABLE x;", 1, "CREATE TABLE"),
        ("CREATE TABLE x (a INT);", 1, "WITH"),
        ("CREATE TABLE x WITH ('type'='source');", 1, "connector"),
        ("CREATE TABLE x WITH ('connector'='A');", 1, "type"),
        ("CREATE TABLE x WITH 'a'='b';", 1, "parentheses"),
        ("CREATE TABLE x WITH ('type'='source' 'connector'='A');", 1, "comma"),
        ("CREATE TABLE x WITH ('type', 'connector'='A');", 1, "'key' = 'value'"),
        ("CREATE TABLE x WITH ('type'='source);", 1, "never closed"),
        ("\n/* config\n env {", 2, "never closed"),
        ("/* config\n env { a = * }\n*/", 2, "*"),
        (SOURCE + SOURCE, 2, "twice"),
        (SOURCE + "CREATE TABLE src AS SELECT a FROM src", 2, "twice"),
        (SOURCE + "CREATE TABLE t AS SELECT a FROM nope", 2, "nope"),
        (SOURCE + "CREATE TABLE t AS VALUES 1", 2, "SELECT"),
        (SOURCE + SINK + "INSERT INTO snk (a, b) SELECT a, b FROM src", 3, "columns"),
        (SOURCE + SINK + "INSERT INTO snk SELECT a FROM (SELECT 1)", 3, "one table"),
        (SOURCE + SINK + "INSERT INTO snk SELECT 1, 2", 3, "one table"),
        (SOURCE + SINK + "INSERT INTO nope SELECT a FROM src", 3, "sink table nope"),
        (SOURCE + SINK + "INSERT INTO src SELECT src", 3, "sink table src"),
        (SOURCE + SINK + "INSERT snk", 3, "INSERT INTO"),
        (
            "CREATE TABLE x WITH ('connector'='A','type'='source','s'='{\n a = [1, , 2] }');",
            2,
            "comma",
        ),
    ],
)
def test_a_mistake_is_named_with_its_line(text, line, words):
    found = problems(text)
    assert any(at == line and words in message for at, message in found), found


def test_a_file_without_statements_has_no_source_and_no_sink():
    assert [p.path for p in read_text("-- nothing", "job.sql", Format.SQL).errors] == [
        "source",
        "sink",
    ]
