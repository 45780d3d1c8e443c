"""Mistakes that are easily made are answered with what to write instead."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from typing import Any

import pytest

from lakepact.client import LoadedTable
from lakepact.client.tables import snapshot_at
from tests.unit.client.script import Script, document, lake, transaction

ID = "019a0000-0000-7000-8000-000000000001"


def metadata(*log: tuple[int, int], retained: tuple[int, ...] | None = None) -> dict[str, Any]:
    """Table metadata whose snapshot log has these pairs of time and snapshot."""
    snapshots = [{"snapshot-id": number, "timestamp-ms": at, "schema-id": 0} for at, number in log]
    return {
        "table-uuid": "u",
        "location": "file:///t",
        "current-snapshot-id": log[-1][1] if log else None,
        "current-schema-id": 1,
        "schemas": [{"schema-id": 0, "fields": []}, {"schema-id": 1, "fields": []}],
        "refs": {"main": {"type": "branch", "snapshot-id": log[-1][1] if log else None}},
        "snapshots": [one for one in snapshots if retained is None or one["snapshot-id"] in retained],
        "snapshot-log": [{"timestamp-ms": at, "snapshot-id": number} for at, number in log],
    }


def loaded(name: str, document: dict[str, Any]) -> dict[str, Any]:
    return {
        "identifier": {"namespace": ["sales"], "name": name},
        "metadata-location": f"file:///{name}.json",
        "metadata": document,
    }


def test_one_name_is_a_cut_of_one_table() -> None:
    script = Script([document({"results": [loaded("orders", metadata())]})])
    cut = lake(script).read_at("sales.orders")
    assert cut["sales.orders"].name == "sales.orders"
    assert script.sent[0].body == {"identifiers": [{"namespace": ["sales"], "name": "orders"}]}


def test_a_tuple_that_may_be_one_table_or_several_is_refused_with_both_spellings() -> None:
    with pytest.raises(ValueError, match=r"write \[\('sales', 'orders'\)\] for one table"):
        lake(Script()).read_at(("sales", "orders"))


@pytest.mark.parametrize("value", [5, "text", [1, 2], None, True])
def test_a_state_document_that_is_no_object_is_a_type_error_that_names_it(value: Any) -> None:
    room = lake(Script([document(transaction(ID))]))
    tx = room.join(ID).begin(renew=False)
    with pytest.raises(TypeError, match="state document 'a' must be a JSON object, not") as raised:
        tx.state["a"] = value
    assert f"{{'value': {value!r}}}" in str(raised.value)


@pytest.mark.parametrize("attribute", ["delta", "tables", "namespaces", "state", "warehouse", "prefix"])
def test_a_joined_transaction_that_has_not_begun_says_how_to_join(attribute: str) -> None:
    tx = lake(Script()).join(ID)
    with pytest.raises(RuntimeError, match=rf"{ID} is not joined yet: use `with lake\.join\('{ID}'\) as tx:`"):
        getattr(tx, attribute)


def test_without_pyspark_the_import_error_says_how_to_install_it() -> None:
    code = (
        "import sys; sys.modules['pyspark'] = None\n"
        "for module in ('lakepact.spark', 'lakepact.spark.session'):\n"
        "    try: __import__(module)\n"
        "    except ImportError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    lines = done.stdout.splitlines()
    assert len(lines) == 2
    for line in lines:
        assert line.startswith(
            "lakepact.spark needs PySpark: pip install -c constraints.txt '.[spark]' in the checkout"
        )


# --- times ---


def test_a_cut_at_a_time_has_the_snapshot_and_the_schema_of_that_time() -> None:
    results = [loaded("a", metadata((1_000, 1), (3_000, 2))), loaded("b", metadata((2_000, 7), (2_500, 8)))]
    cut = lake(Script([document({"results": results})])).read_at(
        ["sales.a", "sales.b"], at=datetime.fromtimestamp(2.9, UTC)
    )
    assert [cut["sales.a"].snapshot_id, cut["sales.b"].snapshot_id] == [1, 8]
    table: LoadedTable = cut["sales.a"]
    assert table.metadata["refs"]["main"]["snapshot-id"] == 1
    assert table.metadata["current-schema-id"] == 0


def test_a_time_before_the_first_snapshot_is_refused() -> None:
    with pytest.raises(ValueError, match=r"sales\.a has no snapshot at or before 1970-01-01T00:00:00"):
        snapshot_at("sales.a", metadata((1_000, 1)), datetime.fromtimestamp(0.5, UTC))


def test_a_snapshot_that_has_expired_is_refused() -> None:
    with pytest.raises(ValueError, match=r"snapshot 1, current at .*, has expired"):
        snapshot_at("sales.a", metadata((1_000, 1), (2_000, 2), retained=(2,)), datetime.fromtimestamp(1.5, UTC))


def test_a_time_without_a_zone_is_refused_before_anything_is_sent() -> None:
    script = Script()
    with pytest.raises(ValueError, match="has no time zone"):
        lake(script).read_at(["sales.a"], at=datetime(2026, 1, 1))  # noqa: DTZ001 - this is the mistake
    assert not script.sent
