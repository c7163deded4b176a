"""Every row of every file is read once, for all limits and numbers of splits.

Rows of a file stay in order within a split.
"""

import csv
import io
import json
import os
import pickle
import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.connectors.localfile import record_boundaries
from tidegate.connectors.localfile.bad_rows import BadFile
from tidegate.connectors.localfile.source import LocalFileSource
from tidegate.connectors.localfile.source_options import SOURCE_OPTIONS
from tidegate.model.job import JobMode
from tidegate.model.problem import Location
from tidegate.plugin.arrow import table_schema
from tidegate.plugin.contract import Limit, OperatorContext
from tidegate.plugin.option import Block


def make(mode: JobMode = JobMode.BATCH, **options: Any) -> LocalFileSource:
    values, problems = SOURCE_OPTIONS.read(
        Block(options, lambda _: Location("job.conf"), "source[0]")
    )
    assert not problems
    source = LocalFileSource(
        values,
        OperatorContext(job_id=1, job_name="j", pipeline=1, operator="s", mode=mode, parallelism=1),
    )
    source.piece_bytes_min = 1
    return source


def rows_of(source: LocalFileSource, start: Any, end: Any, count: int) -> list[dict[str, Any]]:
    """Read all rows of a batch as tasks do: from a pickled source."""
    splits = source.splits(start, end, count)
    copy = pickle.loads(pickle.dumps(source))
    schemas = {table.path: table_schema(table) for table in source.tables()}
    rows = []
    for split in splits:
        for batch in copy.read(split):
            assert batch.schema.equals(schemas[split.table])
            rows += batch.to_pylist()
    return rows


def drain(source: LocalFileSource, limit: Limit, count: int) -> list[dict[str, Any]]:
    """Read all batches to the end; offsets pass through JSON, as in checkpoints."""
    source.tables()
    offset = json.loads(json.dumps(source.initial()))
    rows: list[dict[str, Any]] = []
    while not source.is_exhausted(offset):
        end = json.loads(json.dumps(source.latest(offset, limit)))
        assert end != offset
        rows += rows_of(source, offset, end, count)
        offset = end
    assert source.latest(offset, limit) == offset
    progress = source.progress(offset)
    assert progress is not None
    assert progress.done == progress.total
    return rows


limits = st.one_of(
    st.builds(Limit),
    st.builds(Limit, rows=st.integers(1, 20)),
    st.builds(Limit, bytes=st.integers(1, 300)),
    st.builds(Limit, files=st.integers(1, 3)),
    st.builds(Limit, rows=st.integers(1, 20), bytes=st.integers(1, 300), files=st.integers(1, 3)),
)
words = st.text(
    st.characters(exclude_characters="\r\n\x00", exclude_categories=["Cs"]), min_size=1, max_size=12
)


@settings(max_examples=120, deadline=None)
@given(
    lines=st.lists(st.lists(words | st.just(""), max_size=12), min_size=1, max_size=4),
    newline=st.sampled_from(["\n", "\r\n"]),
    data=st.data(),
)
def test_every_line_of_every_file_comes_once_whatever_the_cuts(
    lines: list[list[str]], newline: str, data: st.DataObject
) -> None:
    limit, count = data.draw(limits), data.draw(st.integers(1, 8))
    with TemporaryDirectory() as folder:
        for i, content in enumerate(lines):
            end = newline if content and data.draw(st.booleans()) else ""
            Path(folder, f"{i}.txt").write_bytes((newline.join(content) + end).encode())
        rows = drain(make(path=folder, file_format_type="text"), limit, count)
    assert [r["content"] for r in rows] == [line for content in lines for line in content if line]


cells = st.text(st.sampled_from('ab",\n\r 1é'), max_size=6)


@settings(max_examples=200, deadline=None)
@given(
    rows=st.lists(st.tuples(cells, cells), max_size=25),
    newline=st.sampled_from(["\n", "\r\n"]),
    data=st.data(),
)
def test_csv_with_quoted_newlines_is_cut_only_where_records_end(
    rows: list[tuple[str, str]], newline: str, data: st.DataObject
) -> None:
    text = io.StringIO()
    all_quoted = data.draw(st.booleans()) or any(
        "\r" in cell for row in rows for cell in row
    )  # Python's writer leaves a bare \r unquoted
    csv.writer(
        text, lineterminator=newline, quoting=csv.QUOTE_ALL if all_quoted else csv.QUOTE_MINIMAL
    ).writerows(rows)
    content = text.getvalue().removesuffix(newline if data.draw(st.booleans()) else "")
    limit, count = data.draw(limits), data.draw(st.integers(1, 8))
    with TemporaryDirectory() as folder:
        Path(folder, "f.csv").write_bytes(content.encode())
        source = make(
            path=folder,
            file_format_type="csv",
            schema={"fields": {"one": "string", "two": "string"}},
        )
        found = drain(source, limit, count)
    # only quotes tell an empty text from none, and the writer does not quote empty texts unless
    # asked
    assert [(r["one"] or "", r["two"] or "") for r in found] == rows


@settings(max_examples=300, deadline=None)
@given(
    content=st.text(st.sampled_from('ab",\n\r\\'), max_size=60),
    quote=st.booleans(),
    escape=st.booleans(),
    data=st.data(),
)
def test_any_text_gives_the_same_rows_cut_or_whole(
    content: str, quote: bool, escape: bool, data: st.DataObject
) -> None:
    options: dict[str, Any] = {
        "quote_char": '"' if quote else "",
        "escape_char": "\\" if escape else None,
    }
    if data.draw(st.booleans()):
        options |= {"short_rows": "fill_null", "long_rows": "drop_extra"}
    limit, count = data.draw(limits), data.draw(st.integers(2, 8))
    with TemporaryDirectory() as folder:
        Path(folder, "f.csv").write_bytes((content + "\n").encode())
        schema = {"fields": {"a": "string", "b": "string", "c": "string"}}
        whole = outcome(
            make(path=folder, file_format_type="csv", schema=schema, **options), Limit(), 1
        )
        assert (
            outcome(
                make(path=folder, file_format_type="csv", schema=schema, **options), limit, count
            )
            == whole
        )


def outcome(source: LocalFileSource, limit: Limit, count: int) -> Any:
    """Return all rows, or the first bad one with its line.

    The number of named rows and the advice depend on where the file is cut.
    """
    try:
        return drain(source, limit, count)
    except BadFile as error:
        return re.split(r" \(|\. (?:Repair it|Rows of this file)", str(error))[0]


@settings(max_examples=60, deadline=None)
@given(objects=st.lists(st.dictionaries(st.sampled_from("ab"), words), max_size=20), data=st.data())
def test_every_json_line_comes_once_whatever_the_cuts(
    objects: list[dict[str, str]], data: st.DataObject
) -> None:
    limit, count = data.draw(limits), data.draw(st.integers(1, 6))
    with TemporaryDirectory() as folder:
        Path(folder, "f.json").write_text(
            "\n".join(json.dumps(o, ensure_ascii=data.draw(st.booleans())) for o in objects),
            "utf-8",
        )
        found = drain(
            make(
                path=folder,
                file_format_type="json",
                schema={"fields": {"a": "string", "b": "string"}},
                missing_columns="fill_null",
            ),
            limit,
            count,
        )
    assert found == [{"a": o.get("a"), "b": o.get("b")} for o in objects]


@pytest.mark.parametrize("form", ["parquet", "orc"])
@pytest.mark.parametrize("limit", [Limit(), Limit(rows=25), Limit(bytes=1), Limit(files=1)])
def test_row_groups_come_once_whatever_the_cuts(tmp_path: Path, form: str, limit: Limit) -> None:
    from pyarrow import orc, parquet

    for name in "ab":
        table = pa.table(
            {"n": pa.array(range(100), pa.int64()), "s": [f"{name}{i}" for i in range(100)]}
        )
        if form == "parquet":
            parquet.write_table(table, tmp_path / f"{name}.parquet", row_group_size=10)
        else:
            orc.write_table(table, str(tmp_path / f"{name}.orc"), stripe_size=1024, batch_size=16)
    for count in (1, 3, 7):
        rows = drain(make(path=str(tmp_path), file_format_type=form), limit, count)
        assert [r["s"] for r in rows] == [f"{name}{i}" for name in "ab" for i in range(100)]


def test_row_limits_are_kept_for_lines_and_row_groups(tmp_path: Path) -> None:
    from pyarrow import parquet

    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "f.csv").write_text("".join(f"{i}\n" for i in range(1000)))
    parquet.write_table(
        pa.table({"n": list(range(1000))}), tmp_path / "f.parquet", row_group_size=10
    )
    for options in (
        {"path": str(tmp_path / "t"), "file_format_type": "csv"},
        {"path": str(tmp_path / "f.parquet"), "file_format_type": "parquet"},
    ):
        source = make(**options)
        start = source.initial()
        end = source.latest(start, Limit(rows=55))
        assert 40 <= len(rows_of(source, start, end, 1)) <= 55


def test_repeated_batch_ignores_files_added_later(tmp_path: Path) -> None:
    for name in "bdf":
        (tmp_path / name).write_text(f"{name}1\n{name}2\n")
    source = make(path=str(tmp_path), file_format_type="text")
    start = source.initial()
    end = source.latest(start, Limit(files=2))
    first = rows_of(source, start, end, 4)
    for name in "aceg":
        (tmp_path / name).write_text("new\n")
    fresh = make(path=str(tmp_path), file_format_type="text")
    assert (
        rows_of(fresh, start, end, 1) == first == [{"content": c} for c in ("b1", "b2", "d1", "d2")]
    )


def test_bounded_source_ends_with_the_last_file_listed_when_it_began(
    tmp_path: Path,
) -> None:
    (tmp_path / "a").write_text("1\n")
    source = make(path=str(tmp_path), file_format_type="text")
    start = source.initial()
    (tmp_path / "b").write_text("2\n")
    fresh = make(path=str(tmp_path), file_format_type="text")
    end = fresh.latest(start, Limit())
    assert rows_of(fresh, start, end, 1) == [{"content": "1"}]
    assert fresh.is_exhausted(end)


def test_a_directory_without_files_is_at_its_end_at_once(tmp_path: Path) -> None:
    source = make(path=str(tmp_path), file_format_type="text")
    start = source.initial()
    assert source.is_exhausted(start)
    assert source.latest(start, Limit()) == start


def test_many_small_files_share_splits_and_a_large_one_is_shared(tmp_path: Path) -> None:
    for i in range(200):
        (tmp_path / f"{i:03}").write_text("x\n" * 50)
    (tmp_path / "large").write_text("x\n" * 10_000)
    source = make(path=str(tmp_path), file_format_type="text")
    start = source.initial()
    splits = source.splits(start, source.latest(start, Limit()), 4)
    assert 4 <= len(splits) <= 6
    assert max(s.weight for s in splits) < 2 * min(s.weight for s in splits)


@pytest.mark.parametrize(
    "change",
    [lambda p: p.write_text("x\n"), lambda p: os.utime(p, ns=(1, 1)), lambda p: p.unlink()],
)
def test_a_file_that_changed_after_it_was_planned_is_refused_by_name(
    tmp_path: Path, change: Any
) -> None:
    path = tmp_path / "f.txt"
    path.write_text("x\n" * 100)
    source = make(path=str(tmp_path), file_format_type="text")
    start = source.initial()
    source.tables()
    end = source.latest(start, Limit(rows=10))
    change(path)
    fresh = make(path=str(tmp_path), file_format_type="text")
    with pytest.raises(
        Exception, match=r"(f\.txt .*since it was planned into a batch|is missing: .*f\.txt)"
    ):
        fresh.latest(end, Limit(rows=10))
    with pytest.raises(
        Exception, match=r"(f\.txt .*since it was planned into a batch|is missing: .*f\.txt)"
    ):
        rows_of(source, start, end, 1)


def test_a_record_that_is_longer_than_a_block_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_boundaries, "BLOCK_BYTES", 16)
    path = tmp_path / "f.csv"
    path.write_text('1,"' + "long\n" * 100 + '"\n2,short\n3,"x"\n')
    source = make(
        path=str(path), file_format_type="csv", schema={"fields": {"a": "int", "b": "string"}}
    )
    assert [r["a"] for r in drain(source, Limit(bytes=5), 3)] == [1, 2, 3]
