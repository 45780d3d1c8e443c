"""The guides: what they show is run, on a real Spark, as it stands there."""

# Fixtures that come from a module beside look to ruff like names that are taken twice.
# ruff: noqa: F811

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakepact import pipelines as dp
from lakepact.pipelines.results import State
from lakepact.spark import SparkLake
from tests.interop.pipelines import drop_namespaces, rows, shared  # noqa: F401
from tests.support.spark import Lake

GUIDES = Path(__file__).parents[2] / "docs" / "guides"


@pytest.fixture(autouse=True)
def clean(lake: Lake, shared: SparkLake) -> Iterator[None]:
    """The guides' names are their own; what they leave in the lake is dropped."""
    yield
    drop_namespaces(lake, shared, "events", "raw", "sales", "shop", "training")


def written(guide: str, folder: Path) -> Path:
    """The pipeline of a guide, as the file that a reader would make of it."""
    blocks: list[str] = re.findall(r"```python\n(.*?)```", (GUIDES / f"{guide}.md").read_text(), re.DOTALL)
    [pipeline] = [block for block in blocks if "dp.pipeline(" in block]
    file = folder / f"{guide.replace('-', '_')}.py"
    file.write_text(pipeline)
    return file


def test_features_and_labels_are_of_one_instant(lake: Lake, shared: SparkLake, tmp_path: Path) -> None:
    lake.sql("CREATE NAMESPACE shop")
    lake.sql("CREATE TABLE shop.facts AS SELECT * FROM VALUES (1, 60D), (1, 70D), (2, 5D) t(customer_id, amount)")
    pipeline = written("features-and-labels", tmp_path)
    assert dp.run(pipeline, shared).state is State.COMMITTED
    assert rows(lake, "training.features") == [(1, 2, 65), (2, 1, 5)]
    assert rows(lake, "training.labels") == [(1, True), (2, False)]
    lake.sql("INSERT INTO shop.facts VALUES (2, 100D), (3, 1D)")
    dp.run(pipeline, shared)
    cut = shared.plain.read_at(["training.features", "training.labels"])
    assert len({cut[name].metadata["last-updated-ms"] for name in ("training.features", "training.labels")}) == 1
    assert rows(lake, "training.labels") == [(1, True), (2, True), (3, False)]


def test_a_dimension_of_one_format_is_published_with_facts_of_another(
    lake: Lake, shared: SparkLake, tmp_path: Path
) -> None:
    lake.sql("CREATE NAMESPACE raw")
    lake.sql(
        "CREATE TABLE raw.customers AS SELECT id AS customer_id, city, CAST(at AS TIMESTAMP) AS changed_at "
        "FROM VALUES (1, 'Bern', '2026-01-01'), (1, 'Basel', '2026-03-01'), (2, 'Chur', '2026-01-01') t(id, city, at)"
    )
    lake.sql(
        "CREATE TABLE raw.orders AS SELECT id, customer AS customer_id, CAST(at AS TIMESTAMP) AS at "
        "FROM VALUES (10, 1, '2026-02-01'), (11, 1, '2026-04-01'), (12, 2, '2026-02-01') t(id, customer, at)"
    )
    pipeline = written("dimension-and-facts", tmp_path)
    first = dp.run(pipeline, shared)
    assert first.state is State.COMMITTED
    customers = shared.plain.delta.load("sales.customers")
    assert (customers.version, customers.timestamp_ms) == (0, lake.metadata("sales.orders")["last-updated-ms"])
    joined = "SELECT o.id, month(o.since) FROM other.sales.orders o"
    assert sorted(map(tuple, lake.sql(joined))) == [(10, 1), (11, 3), (12, 1)]
    assert {one.table for one in first.inputs} == {"raw.customers", "raw.orders", "sales.customers"}
    # A new version of a customer and an order that refers to it come together; what is there is not repeated.
    lake.sql("INSERT INTO raw.customers VALUES (2, 'Genf', TIMESTAMP '2026-05-01')")
    lake.sql("INSERT INTO raw.orders VALUES (13, 2, TIMESTAMP '2026-06-01')")
    dp.run(pipeline, shared)
    assert sorted(map(tuple, lake.sql(joined))) == [(10, 1), (11, 3), (12, 1), (13, 5)]
    held = {(row["customer_id"], row["city"]) for row in shared.table("sales.customers").collect()}
    assert held == {(1, "Bern"), (1, "Basel"), (2, "Chur"), (2, "Genf")}
    customers = shared.plain.delta.load("sales.customers")
    assert (customers.version, customers.timestamp_ms) == (1, lake.metadata("sales.orders")["last-updated-ms"])
    # An order of nobody's leaves both as they are.
    lake.sql("INSERT INTO raw.orders VALUES (13, 2, TIMESTAMP '2026-06-01')")
    with pytest.raises(dp.CheckFailed, match="id unique"):
        dp.run(pipeline, shared)
    assert shared.plain.delta.load("sales.customers").version == 1


def test_three_stages_have_one_checkpoint(lake: Lake, shared: SparkLake, tmp_path: Path) -> None:
    def landing(day: str, *events: dict[str, object]) -> str:
        folder = tmp_path / day
        folder.mkdir()
        (folder / "events.json").write_text("\n".join(json.dumps(event) for event in events))
        return str(folder)

    def event(number: int, user: int) -> dict[str, object]:
        return {"event_id": number, "user_id": user, "at": f"2026-07-01T00:00:{number:02}Z"}

    pipeline = written("checkpoint-across-stages", tmp_path)
    folder = landing("first", event(1, 1), event(2, 1), event(2, 1))
    first = dp.run(pipeline, shared, run_id="2026-07-01", params={"folder": folder})
    again = dp.run(pipeline, shared, run_id="2026-07-01", params={"folder": folder})
    assert (first.state, again.state) == (State.COMMITTED, State.ALREADY_COMMITTED)
    tables = [f"events.{table}" for table in ("landed", "cleaned", "by_user")]
    counts = [lake.sql(f"SELECT count(*) FROM other.{table}")[0][0] for table in tables]
    assert counts == [3, 2, 1]
    # More than one in twenty cannot be read: the day has not landed either.
    bad = landing("second", event(3, 2), {"event_id": None, "user_id": 2, "at": None})
    with pytest.raises(dp.CheckFailed, match="can be read"):
        dp.run(pipeline, shared, run_id="2026-07-02", params={"folder": bad})
    assert [lake.sql(f"SELECT count(*) FROM other.{table}")[0][0] for table in tables] == counts
    good = landing("third", event(3, 2))
    assert dp.run(pipeline, shared, run_id="2026-07-02", params={"folder": good}).state is State.COMMITTED
    assert [lake.sql(f"SELECT count(*) FROM other.{table}")[0][0] for table in tables] == [4, 3, 2]
    assert len({lake.metadata(table)["last-updated-ms"] for table in tables}) == 1
