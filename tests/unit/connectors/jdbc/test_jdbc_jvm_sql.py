"""Statements for databases behind JDBC drivers, for every brand."""

import pytest

from tidegate.connectors.jdbc.jvm_sql import Brand, JvmMergeSql, create_record_table, create_stage


@pytest.mark.parametrize(
    ("url", "brand"),
    [
        ("jdbc:oracle:thin:@//h:1521/x", Brand.ORACLE), ("jdbc:db2://h:50000/x", Brand.DB2), ("jdbc:sqlserver://h;databaseName=x", Brand.SQLSERVER),
        ("jdbc:h2:mem:x", Brand.H2), ("jdbc:derby:memory:x", Brand.DERBY), ("jdbc:vertica://h/x", Brand.GENERIC), ("", Brand.GENERIC),
    ],
)  # fmt: skip
def test_brand_is_derived_from_the_url(url: str, brand: Brand) -> None:
    assert Brand.of(url) is brand
    assert brand.has_known_transactions == (brand is not Brand.GENERIC)


def merge(brand: Brand, key: tuple[int, ...] = (0,), *, upsert: bool = True) -> list[str]:
    made = JvmMergeSql(
        brand=brand,
        target="S.T",
        stage="st",
        columns=('"ID"', '"N"'),
        key=key,
        upsert=upsert,
        large=frozenset({1}),
    )
    return made.statements()


@pytest.mark.parametrize("brand", list(Brand))
def test_merge_handles_each_key_once_and_deletes_first(brand: Brand) -> None:
    pruned, gone, dropped, *puts = merge(brand)
    assert (
        pruned == "delete from st where exists (select 1 from st later where st.c0 = later.c0 and"
        " later.tg_seq > st.tg_seq)"
    )
    assert (
        gone
        == 'delete from S.T where exists (select 1 from st s where s.tg_kind in (1, 3) and S.T."ID"'
        " = s.c0)"
    )
    assert dropped == "delete from st where tg_kind in (1, 3)"
    assert [text.split()[0] for text in puts] == (
        ["update", "insert"] if brand is Brand.GENERIC else ["merge"]
    )
    assert puts[-1].endswith(";") == (brand is Brand.SQLSERVER)


def test_merge_uses_only_sql_that_all_brands_support() -> None:
    assert (
        merge(Brand.ORACLE)[-1]
        == 'merge into S.T t using st s on (t."ID" = s.c0) when matched then update set "N" ='
        ' cast(s.c1 as varchar(32672)) when not matched then insert ("ID", "N") values (s.c0,'
        " cast(s.c1 as varchar(32672)))"
    )
    only_key = JvmMergeSql(
        brand=Brand.H2, target="t", stage="s1", columns=("a",), key=(0,), upsert=True
    ).statements()[-1]
    assert "when matched" not in only_key
    assert merge(Brand.GENERIC)[-1].endswith(
        'where not exists (select 1 from S.T t where t."ID" = st.c0)'
    )


def test_rows_without_key_are_inserted_and_without_upsert_only_updates_replace() -> None:
    assert merge(Brand.DB2, ()) == [
        'insert into S.T ("ID", "N") select c0, cast(c1 as varchar(32672)) from st'
    ]
    assert [text.split()[0] for text in merge(Brand.DB2, upsert=False)] == [
        "delete",
        "delete",
        "delete",
        "delete",
        "insert",
    ]


@pytest.mark.parametrize("brand", list(Brand))
def test_staging_table_has_the_target_types_if_the_sql_is_known(
    brand: Brand,
) -> None:
    text = create_stage(brand, "st", "T", ['"ID"'])
    assert (text == "") == (brand is Brand.GENERIC)
    assert ('case when 1 = 0 then "ID" end as c0' in text) == (
        brand not in (Brand.GENERIC, Brand.H2)
    ), "to H2 that would be a null without a type"
    assert ("into st" in text) == (brand is Brand.SQLSERVER)
    assert "bigint" not in create_record_table(brand)
