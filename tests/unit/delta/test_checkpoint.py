"""Checkpoints hold the whole state, and are read back in every form they come in."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakepact.delta.actions import Action, DomainMetadata, Txn
from lakepact.delta.checkpoint import (
    checkpoint_file,
    last_checkpoint_file,
    read_checkpoint,
    retention_ms,
)
from lakepact.delta.errors import BadLog
from lakepact.delta.state import TableState, replay
from tests.unit.delta.tables import CREATION, META, add, remove


def a_state() -> TableState:
    versions: list[list[Action]] = [
        [*CREATION],
        [add("a"), add("b", None), Txn("app", 3, 4), DomainMetadata("d", "{}")],
        [remove("a")],
    ]
    return replay(versions)


def without_data_change(state: TableState) -> TableState:
    files = {key: replace(one, data_change=False) for key, one in state.files.items()}
    tombstones = {key: replace(one, data_change=False) for key, one in state.tombstones.items()}
    return replace(state, files=files, tombstones=tombstones)


def test_a_checkpoint_is_the_state() -> None:
    state = a_state()
    file = checkpoint_file(state, tombstones_after_ms=0)
    read = read_checkpoint(2, [("x.checkpoint.parquet", file)])
    assert read.state == without_data_change(state)
    assert read.dropped == ()
    assert file == checkpoint_file(state, tombstones_after_ms=0)


def test_it_has_one_row_an_action_with_real_maps() -> None:
    table = pq.read_table(io.BytesIO(checkpoint_file(a_state(), tombstones_after_ms=0)))
    assert table.num_rows == 6
    assert table.column_names == ["protocol", "metaData", "txn", "domainMetadata", "remove", "add"]
    assert all(sum(value is not None for value in row.values()) == 1 for row in table.to_pylist())
    assert table.schema.field("add").type.field("partitionValues").type == pa.map_(pa.string(), pa.string())


def test_tombstones_from_before_are_left_out() -> None:
    state = a_state()
    at = next(iter(state.tombstones.values())).deletion_timestamp
    file = checkpoint_file(state, tombstones_after_ms=at)
    assert not read_checkpoint(2, [("x.parquet", file)]).state.tombstones
    last = orjson.loads(last_checkpoint_file(state, file, tombstones_after_ms=at))
    assert last == {"version": 2, "size": 5, "sizeInBytes": len(file), "numOfAddFiles": 1}
    assert orjson.loads(last_checkpoint_file(state, file, tombstones_after_ms=at - 1))["size"] == 6


@pytest.mark.parametrize(
    ("text", "days"),
    [
        (None, 7),
        ("interval 30 days", 30),
        ("interval 1 week", 7),
        ("48 hours", 2),
        ("INTERVAL 1 DAY 24 HOURS", 2),
        ("a while", 7),
        ("interval 2 moons", 7),
    ],
)
def test_how_long_removed_files_are_remembered(text: str | None, days: int) -> None:
    configuration = {} if text is None else {"delta.deletedFileRetentionDuration": text}
    assert retention_ms(replace(META, configuration=configuration)) == days * 86_400_000


def rows_of(state: TableState) -> list[dict[str, Any]]:
    file = checkpoint_file(state, tombstones_after_ms=0)
    return [dict(row) for row in pq.read_table(io.BytesIO(file)).to_pylist(maps_as_pydicts="strict")]


def some_rows(state: TableState, wanted: slice) -> bytes:
    table = pq.read_table(io.BytesIO(checkpoint_file(state, tombstones_after_ms=0)))
    sink = io.BytesIO()
    pq.write_table(table.take(list(range(table.num_rows))[wanted]), sink)
    return sink.getvalue()


def test_a_checkpoint_in_parts_is_read_as_one() -> None:
    state = a_state()
    parts = [("one.parquet", some_rows(state, slice(0, 4))), ("two.parquet", some_rows(state, slice(4, None)))]
    assert read_checkpoint(2, parts).state == without_data_change(state)


def test_a_checkpoint_with_sidecars_is_read_with_them() -> None:
    state = a_state()
    sidecar = some_rows(state, slice(4, None))
    document = [
        {"checkpointMetadata": {"version": 2}},
        {"sidecar": {"path": "x%20y.parquet", "sizeInBytes": len(sidecar), "modificationTime": 1}},
        *({kind: body for kind, body in row.items() if body is not None} for row in rows_of(state)[:4]),
    ]
    manifest = b"\n".join(map(orjson.dumps, document))
    read = read_checkpoint(2, [("v2.json", manifest)], {"x y.parquet": sidecar}.__getitem__)
    assert read.state == without_data_change(state)
    with pytest.raises(BadLog, match=r"sidecar 'x y\.parquet' that cannot be read"):
        read_checkpoint(2, [("v2.json", manifest)])


def test_statistics_that_are_only_there_with_types_are_dropped_and_said() -> None:
    rows = rows_of(a_state())
    rows[-1]["add"] |= {"stats": None, "stats_parsed": {"numRecords": 1}, "partitionValues_parsed": {"day": "x"}}
    lines = [orjson.dumps({kind: body for kind, body in row.items() if body is not None}) for row in rows]
    read = read_checkpoint(2, [("v2.json", b"\n".join(lines))])
    assert read.dropped == ("add.stats_parsed",)
    assert [one.stats for one in read.state.files.values()] == [None]


def test_what_is_no_checkpoint_is_refused() -> None:
    with pytest.raises(BadLog, match=r"x\.parquet: not a Parquet file"):
        read_checkpoint(2, [("x.parquet", b"PAR1")])
    with pytest.raises(BadLog, match="has a protocol"):
        read_checkpoint(2, [("x.json", b"")])
