"""Inputs are found by the parameters of a function and by its source."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

from lakepact import pipelines as dp
from lakepact.pipelines import read_new
from lakepact.pipelines.inputs import found_in, parameters_of

ORDERS = "raw.orders"
DATABASE = "raw"
spark: Any = None


def helper() -> Any:
    return spark.table("raw.by_helper")


def circular() -> Any:
    return circular() or spark.table("raw.circular")


def test_parameters_without_a_default_are_inputs_but_for_the_reserved_ones() -> None:
    def stage(orders: Any, customers: Any, spark: Any, params: Any, limit: int = 3, *, products: Any) -> None: ...

    assert parameters_of(stage) == ("orders", "customers", "products")


def test_every_way_to_read_a_table_is_seen() -> None:
    def stage() -> Any:
        one = dp.read("a.one")
        two = dp.read_new("a.two", skip_changes=True)
        three = read_new("a.three")
        four = spark.read.table("a.four")
        five = spark.read.option("x", 1).table("a.five")
        six = spark.table("a.six")
        seven = spark.sql("SELECT * FROM a.seven JOIN a.eight USING (x)")
        nine = spark.read.table(tableName="a.nine")
        return one, two, three, four, five, six, seven, nine

    assert found_in(stage) == tuple(
        f"a.{name}" for name in ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
    )


def test_constants_and_texts_made_of_them_are_understood() -> None:
    table = "closed_over"

    def stage() -> Any:
        return spark.table(ORDERS), dp.read(f"{DATABASE}.customers"), dp.read(f"{DATABASE}.{table}")

    assert found_in(stage) == ("raw.orders", "raw.customers", "raw.closed_over")


def test_what_is_known_only_at_run_time_is_left_to_the_user() -> None:
    def stage(day: str = "1") -> Any:
        return spark.table("orders_" + day), dp.read(f"orders_{day}")

    assert found_in(stage) == ()


def test_functions_of_the_same_module_are_looked_into_once() -> None:
    def stage() -> Any:
        return helper(), helper(), circular()

    assert found_in(stage) == ("raw.by_helper", "raw.circular")


def test_a_query_that_is_returned_is_read() -> None:
    def stage() -> str:
        return "SELECT * FROM raw.orders"

    assert found_in(stage) == ("raw.orders",)


def test_decorators_name_outputs_and_not_inputs() -> None:
    with dp.Pipeline("test"):

        @dp.table(name="out.orders")
        @dp.expect("right", "x > 0")
        def stage() -> Any:
            return spark.table("raw.orders")

    assert found_in(stage) == ("raw.orders",)


def test_a_function_without_source_has_no_inputs_to_be_found() -> None:
    made: dict[str, Any] = {}
    exec("def stage(): return spark.table('raw.orders')", made)
    assert found_in(made["stage"]) == ()


def test_a_file_of_declarations_can_be_imported_like_any_other_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shop_of_a_test.py").write_text(
        "from lakepact import pipelines as dp\n"
        "dp.pipeline(namespace='shop')\n"
        "@dp.table\n"
        "def doubled(orders):\n"
        "    return [2 * one for one in orders]\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("shop_of_a_test")
    assert module.doubled([1, 2]) == [2, 4]
    assert list(dp.declared_in(module).graph().steps) == ["shop.doubled"]
    with pytest.raises(dp.InvalidPipeline, match="no pipeline is being declared"):
        dp.table(name="shop.late")(module.doubled)
