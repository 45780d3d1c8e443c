"""The metadata log: what is kept of it, and which files fall off."""

from __future__ import annotations

import pytest

from lakepact.iceberg.errors import InvalidUpdate
from lakepact.iceberg.fields import JsonObject
from tests.unit.iceberg.tables import NOW_MS, create, fold


def set_property(name: str, value: str) -> JsonObject:
    return {"action": "set-properties", "updates": {name: value}}


def logged(count: int, properties: JsonObject | None = None) -> JsonObject:
    entries = [{"timestamp-ms": NOW_MS - 1_000 + n, "metadata-file": f"file-{n}"} for n in range(count)]
    base = create()
    return base | {"metadata-log": entries, "properties": properties or {}}


def test_a_hundred_files_are_kept_unless_the_table_says_otherwise() -> None:
    applied = fold(logged(100), set_property("a", "b"), previous_location="last")
    files = [entry["metadata-file"] for entry in applied.metadata["metadata-log"]]
    assert len(files) == 100
    assert (files[0], files[-1]) == ("file-1", "last")
    assert applied.dropped_files == ("file-0",)


def test_the_new_properties_decide_how_many_stay() -> None:
    applied = fold(logged(5), set_property("write.metadata.previous-versions-max", "2"), previous_location="last")
    assert [entry["metadata-file"] for entry in applied.metadata["metadata-log"]] == ["file-4", "last"]
    assert applied.dropped_files == ("file-0", "file-1", "file-2", "file-3")


@pytest.mark.parametrize("kept", ["0", "-3", "1"])
def test_at_least_one_file_stays(kept: str) -> None:
    applied = fold(logged(3, {"write.metadata.previous-versions-max": kept}), set_property("a", "b"))
    assert len(applied.metadata["metadata-log"]) == 1


@pytest.mark.parametrize("value", ["many", "", "1.5", " 5", "1_0", "99999999999", "+-1"])
def test_a_bound_that_is_no_number_is_refused(value: str) -> None:
    with pytest.raises(InvalidUpdate, match="must be a whole number"):
        fold(create(), set_property("write.metadata.previous-versions-max", value))


def test_without_a_previous_file_nothing_is_logged() -> None:
    applied = fold(create(), set_property("a", "b"), previous_location=None)
    assert applied.metadata["metadata-log"] == []
