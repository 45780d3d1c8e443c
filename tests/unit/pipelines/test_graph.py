"""The graph follows from inputs and outputs, and whatever cannot run is an error before anything does."""

from __future__ import annotations

from typing import Any

import pytest

from lakepact import pipelines as dp
from lakepact.pipelines.drawing import svg, text
from lakepact.pipelines.expectations import Function
from lakepact.pipelines.graph import Graph


def shop() -> Graph:
    with dp.Pipeline("shop", namespace="shop") as pipeline:

        @dp.materialized_view
        @dp.expect_rows(at_least=1)
        def daily(facts: Any) -> Any: ...

        @dp.table
        def facts(clean_orders: Any, customers: Any) -> Any: ...

        @dp.temporary_view
        def clean_orders() -> Any:
            return dp.read("raw.orders")

        @dp.table(mode="merge", keys=["id"])
        def customers() -> Any:
            return dp.read_new("raw.customers")

        dp.materialized_view(name="features", sql="SELECT * FROM facts JOIN customers USING (id)")

    return pipeline.graph()


def test_levels_hold_what_can_run_side_by_side() -> None:
    graph = shop()
    assert graph.levels == (("clean_orders", "shop.customers"), ("shop.facts",), ("shop.daily", "shop.features"))
    assert graph.externals == ("raw.orders", "raw.customers")
    assert graph.tables == ("shop.customers", "shop.facts", "shop.daily", "shop.features")
    assert graph.steps["shop.facts"].reads == ("clean_orders", "shop.customers")
    assert graph.steps["shop.features"].reads == ("shop.facts", "shop.customers")


def test_a_step_is_ready_once_everything_it_reads_is_done() -> None:
    graph = shop()
    assert graph.ready(done=(), begun=()) == ("clean_orders", "shop.customers")
    assert graph.ready(done=["clean_orders"], begun=["clean_orders", "shop.customers"]) == ()
    done = ["clean_orders", "shop.customers"]
    assert graph.ready(done, done) == ("shop.facts",)


def test_a_part_brings_the_views_it_needs_and_reads_other_tables_as_they_are() -> None:
    part = shop().only(["facts"], "shop")
    assert tuple(part.steps) == ("clean_orders", "shop.facts")
    assert part.externals == ("raw.orders", "shop.customers")
    with pytest.raises(dp.InvalidPipeline, match="no nothing in this pipeline"):
        shop().only(["nothing"], "shop")


def test_what_else_is_made_of_a_view_is_known() -> None:
    with dp.Pipeline("views", namespace="a") as pipeline:
        dp.temporary_view(name="new", sql="SELECT * FROM raw.orders")
        dp.temporary_view(name="newer", sql="SELECT * FROM new")
        dp.table(name="one", sql="SELECT * FROM newer")
        dp.table(name="two", sql="SELECT * FROM new")

    graph = pipeline.graph()
    assert graph.left_out_of(graph) == {}
    assert graph.left_out_of(graph.only(["one"], "a")) == {"new": {"a.two"}}
    assert graph.left_out_of(graph.only(["two"], "a")) == {"new": {"a.one"}}


def test_flows_into_one_table_are_one_step() -> None:
    with dp.Pipeline("flows") as pipeline:
        dp.create_streaming_table("a.all")

        @dp.append_flow(target="a.all")
        def north() -> Any:
            return dp.read("raw.north")

        @dp.append_flow(target="a.all", name="from the south")
        def south() -> Any:
            return dp.read("raw.south")

    step = pipeline.graph().steps["a.all"]
    assert [flow.name for flow in step.flows] == ["north", "from the south"]
    assert step.reads == ("raw.north", "raw.south")


def test_a_parameter_takes_the_input_it_is_named_after() -> None:
    with dp.Pipeline("parameters") as pipeline:

        @dp.table(name="a.listed", inputs=["raw.orders"])
        def listed(orders: Any) -> Any: ...

        @dp.table(name="a.mapped", inputs={"o": "raw.orders"})
        def mapped(o: Any) -> Any: ...

        @dp.table(name="a.declared")
        def declared(mapped: Any) -> Any: ...

    steps = pipeline.graph().steps
    assert steps["a.listed"].flows[0].parameters == {"orders": "raw.orders"}
    assert steps["a.mapped"].flows[0].parameters == {"o": "raw.orders"}
    assert steps["a.declared"].flows[0].parameters == {"mapped": "a.mapped"}


def test_parameters_of_a_check_are_bound_by_name_and_not_by_position() -> None:
    with dp.Pipeline("checks", namespace="a") as pipeline:
        dp.table(name="orders", sql="SELECT 1 AS id")
        dp.table(name="customers", sql="SELECT 1 AS id")

        @dp.check("orders")
        def known(customers: Any, orders: Any) -> bool:
            return True

    [check] = pipeline.graph().steps["a.orders"].cross_checks
    assert isinstance(check, Function)
    assert (check.own, check.others) == (("orders",), (("customers", "a.customers"),))


def test_with_a_namespace_an_unknown_parameter_of_a_check_is_an_external_table() -> None:
    with dp.Pipeline("checks", namespace="a") as pipeline:
        dp.table(name="orders", sql="SELECT 1 AS id")

        @dp.check("orders")
        def right(x: Any) -> bool:
            return True

    graph = pipeline.graph()
    [check] = graph.steps["a.orders"].cross_checks
    assert isinstance(check, Function)
    assert (check.own, check.others) == ((), (("x", "a.x"),))
    # The run refuses it unless there is such a table.
    assert graph.externals == ("a.x",)


def test_a_table_may_read_what_it_was_before() -> None:
    with dp.Pipeline("itself") as pipeline:

        @dp.table(name="a.seen")
        def seen() -> Any:
            return dp.read("raw.orders").join(dp.read("a.seen"), "id", "left_anti")

    step = pipeline.graph().steps["a.seen"]
    assert step.reads_itself
    assert step.reads == ("raw.orders",)


# --- what cannot run ---


def test_a_circle_is_shown() -> None:
    with dp.Pipeline("circle", namespace="a") as pipeline:

        @dp.table
        def one(three: Any) -> Any: ...

        @dp.table
        def two(one: Any) -> Any: ...

        @dp.table
        def three(two: Any) -> Any: ...

    with pytest.raises(dp.InvalidPipeline, match=r"a\.one → a\.three → a\.two → a\.one"):
        pipeline.graph()


def test_a_view_of_itself_is_a_circle() -> None:
    with dp.Pipeline("circle", namespace="a") as pipeline:

        @dp.materialized_view
        def one(one: Any) -> Any: ...

    with pytest.raises(dp.InvalidPipeline, match=r"a\.one → a\.one"):
        pipeline.graph()


def test_two_declarations_of_one_table_are_refused_with_both_places() -> None:
    with dp.Pipeline("twice", namespace="a") as pipeline:
        dp.table(name="orders", sql="SELECT 1 AS id")
        dp.table(name="a.orders", sql="SELECT 2 AS id")

    with pytest.raises(dp.InvalidPipeline, match=r"declared twice, at test_graph.py:\d+ and at test_graph.py:\d+"):
        pipeline.graph()


def test_names_that_lead_nowhere_are_refused() -> None:
    with dp.Pipeline("nowhere") as pipeline:
        dp.table(name="a.orders", sql="SELECT * FROM orders")
    with pytest.raises(dp.InvalidPipeline, match="reads orders, which is not declared here and has no namespace"):
        pipeline.graph()

    with dp.Pipeline("nowhere") as pipeline:
        dp.table(name="orders", sql="SELECT 1")
    with pytest.raises(dp.InvalidPipeline, match="orders has no namespace"):
        pipeline.graph()

    with dp.Pipeline("nowhere", namespace="a") as pipeline:

        @dp.append_flow(target="orders")
        def flow() -> Any: ...

        dp.table(name="others", sql="SELECT 1")
    with pytest.raises(dp.InvalidPipeline, match=r"appends to a\.orders, which is not declared"):
        pipeline.graph()

    with dp.Pipeline("nowhere", namespace="a") as pipeline:
        dp.create_streaming_table("orders")
    with pytest.raises(dp.InvalidPipeline, match=r"nothing fills a\.orders"):
        pipeline.graph()

    with dp.Pipeline("nowhere", namespace="a") as pipeline:
        dp.table(name="orders", sql="SELECT 1")

        @dp.check("nothing")
        def right(nothing: Any) -> bool:
            return True

    with pytest.raises(dp.InvalidPipeline, match=r"check right is of a\.nothing"):
        pipeline.graph()


def test_a_parameter_of_a_check_that_is_no_dataset_is_refused_with_the_fix() -> None:
    with dp.Pipeline("checks") as pipeline:
        dp.table(name="a.orders", sql="SELECT 1 AS id")

        @dp.check("a.orders")
        def right(x: Any) -> bool:
            return True

    why = r"check right of a\.orders has a parameter x, which is no dataset of this pipeline\..* call it orders"
    with pytest.raises(dp.InvalidPipeline, match=why):
        pipeline.graph()


def test_an_ambiguous_parameter_is_refused() -> None:
    with dp.Pipeline("ambiguous") as pipeline:
        dp.table(name="a.orders", sql="SELECT 1")
        dp.table(name="b.orders", sql="SELECT 1")

        @dp.table(name="c.out")
        def out(orders: Any) -> Any: ...

    with pytest.raises(dp.InvalidPipeline, match=r"may be a\.orders or b\.orders"):
        pipeline.graph()


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"mode": "merge"}, "needs the keys"),
        ({"mode": "append", "keys": ["id"]}, "takes no keys"),
        ({"mode": "upsert"}, "mode is one of"),
        ({"cluster_by": ["id"]}, "partition_cols"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options: dict[str, Any], why: str) -> None:
    with dp.Pipeline("options"), pytest.raises(dp.InvalidPipeline, match=why):
        dp.table(name="a.orders", sql="SELECT 1", **options)


def test_declarations_outside_of_a_pipeline_say_how_to_have_one() -> None:
    with pytest.raises(dp.InvalidPipeline, match="lakepact run"):

        @dp.table
        def orders() -> Any: ...


def test_an_empty_pipeline_is_refused() -> None:
    with pytest.raises(dp.InvalidPipeline, match="declares nothing"):
        dp.Pipeline("empty").graph()


# --- for people ---


def test_the_tree_shows_everything_once_in_full() -> None:
    assert text(shop()).splitlines() == [
        "raw.orders  external",
        "└─ clean_orders  temporary view",
        "   └─ shop.facts  table, append",
        "      ├─ shop.daily  materialized view, 1 check",
        "      └─ shop.features  materialized view",
        "raw.customers  external",
        "└─ shop.customers  table, merge",
        "   ├─ shop.facts  table, append (above)",
        "   └─ shop.features  materialized view",
    ]


def test_the_drawing_has_a_box_for_each_dataset_and_an_arrow_for_each_input() -> None:
    graph = shop()
    drawn = svg(graph, "a < b")
    assert drawn.count("<rect") == len(graph.steps) + len(graph.externals)
    assert drawn.count("marker-end") == sum(len(step.reads) for step in graph.steps.values())
    assert "a &lt; b" in drawn
