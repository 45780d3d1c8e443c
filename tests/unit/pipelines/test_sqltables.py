"""Tables are found in SQL without Spark."""

from __future__ import annotations

import pytest

from lakepact.pipelines.sqltables import parts_of, quoted, replaced, tables_in


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


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT a FROM s.t", "SELECT a FROM `v` AS `t`"),
        ("SELECT t.a FROM s . t WHERE t.a = 's.t'", "SELECT t.a FROM `v` AS `t` WHERE t.a = 's.t'"),
        ("SELECT x.a FROM s.t x", "SELECT x.a FROM `v` x"),
        ("SELECT x.a FROM s.t AS x, other", "SELECT x.a FROM `v` AS x, other"),
        ("SELECT * FROM a JOIN `s`.`t` ON true", "SELECT * FROM a JOIN `v` AS `t` ON true"),
        ("SELECT * FROM s.t LEFT JOIN s.t AS u USING (id)", "SELECT * FROM `v` AS `t` LEFT JOIN `v` AS u USING (id)"),
        ("SELECT * FROM (SELECT * FROM s.t) -- s.t", "SELECT * FROM (SELECT * FROM `v` AS `t`) -- s.t"),
        ("WITH t AS (SELECT * FROM s.t) SELECT * FROM t", "WITH t AS (SELECT * FROM `v` AS `t`) SELECT * FROM t"),
        ("SELECT s.t FROM u AS s", "SELECT s.t FROM u AS s"),
    ],
)
def test_a_table_is_replaced_by_a_view_that_has_its_name(sql: str, expected: str) -> None:
    assert replaced(sql, {"s.t": "v"}) == expected
