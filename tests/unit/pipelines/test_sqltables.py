"""Tables are found in SQL without Spark."""

from __future__ import annotations

import pytest

from lakepact.pipelines.sqltables import parts_of, quoted, tables_in


@pytest.mark.parametrize(
    ("sql", "tables"),
    [
        ("SELECT 1", ()),
        ("SELECT * FROM sales.orders", ("sales.orders",)),
        ("SELECT * FROM a.b x JOIN c ON x.i = c.i, d e WHERE 1 = 1", ("a.b", "c", "d")),
        ("SELECT * FROM a LEFT OUTER JOIN b USING (x, y) CROSS JOIN c", ("a", "b", "c")),
        ("SELECT a FROM (SELECT * FROM x) UNION ALL SELECT b FROM y WHERE k IN (SELECT k FROM z)", ("x", "y", "z")),
        ("SELECT * FROM (a JOIN b ON a.x = b.x), c GROUP BY f(a, b)", ("a", "b", "c")),
        ("SELECT * FROM `my db`.`odd.name`", ("my db.odd.name",)),
        ("SELECT * FROM t VERSION AS OF 3, u TABLESAMPLE (5 ROWS)", ("t", "u")),
        ("SELECT * FROM a, LATERAL (SELECT * FROM deep) l", ("a", "deep")),
        ("SELECT * FROM t LATERAL VIEW explode(m) AS k, v", ("t",)),
        ("FROM a |> JOIN b ON a.x = b.x |> WHERE y", ("a", "b")),
        ("SELECT * FROM t, t AS again", ("t",)),
    ],
)
def test_the_tables_of_a_query_are_found(sql: str, tables: tuple[str, ...]) -> None:
    assert tables_in(sql) == tables


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 'from nowhere', \"from there\" -- from a comment\n /* from another */",
        "SELECT extract(YEAR FROM day), trim(BOTH 'x' FROM y), substring(z FROM 2)",
        "SELECT a IS DISTINCT FROM b",
        "SELECT * FROM range(10) r",
        "SELECT * FROM VALUES (1), (2)",
        "SELECT * FROM parquet.`/some/folder`",
    ],
)
def test_what_is_no_table_is_not_taken_for_one(sql: str) -> None:
    assert tables_in(sql) == ()


def test_names_that_the_query_defines_are_its_own() -> None:
    sql = """WITH recent AS (SELECT * FROM raw.orders WHERE day > 3),
                  totals (id, total) AS (SELECT id, sum(x) FROM recent GROUP BY id)
             SELECT * FROM recent JOIN totals USING (id) JOIN customers USING (id)"""
    assert tables_in(sql) == ("raw.orders", "customers")


def test_quoting_and_reading_a_name_are_inverse() -> None:
    assert parts_of(quoted("sales.odd`name")) == ("sales", "odd`name")
