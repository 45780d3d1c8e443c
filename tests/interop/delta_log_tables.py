"""Delta tables made by our own codec, as files: what a mirror would publish, for others to read."""

from __future__ import annotations

import datetime as dt
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake

from lakepact.delta import engine_types
from lakepact.delta import schema as schemas
from lakepact.delta.actions import Action, Add, CommitInfo, Metadata, Remove, Txn
from lakepact.delta.checkpoint import checkpoint_file, last_checkpoint_file, newest_due
from lakepact.delta.codec import commit_file
from lakepact.delta.log_reader import LogFile, read_state
from lakepact.delta.partitions import value_text
from lakepact.delta.paths import decode_path, partition_path
from lakepact.delta.protocol import MANAGED_CONFIGURATION, managed_protocol, take_over
from lakepact.delta.schema import Array, Field, Map, Primitive, Struct
from lakepact.delta.state import Replay
from lakepact.delta.stats import add_action

START_MS: Final = time.time_ns() // 1_000_000 - 3_600_000
"""Spark travels back no further than removed files are kept, a week if nothing is said."""
LATER_MS: Final = START_MS + 10_000_000
LONG_TEXT: Final = "é" * 40 + "tail"
ODD: Final = "a:b c/é=%"
MOMENT: Final = dt.datetime(2026, 1, 31, 12, 30, 15, 123456, tzinfo=dt.UTC)

POINT: Final = Struct((Field("x", Primitive("double")), Field("label", Primitive("string"))))
SCHEMA: Final = Struct(
    (
        Field("id", Primitive("long")),
        Field("small", Primitive("short")),
        Field("text", Primitive("string")),
        Field("amount", Primitive("decimal(20,2)")),
        Field("ratio", Primitive("double")),
        Field("flag", Primitive("boolean")),
        Field("raw", Primitive("binary")),
        Field("day", Primitive("date")),
        Field("at", Primitive("timestamp")),
        Field("point", POINT),
        Field("tags", Array(Primitive("string"))),
        Field("counts", Map(Primitive("string"), Primitive("integer"))),
        Field("p", Primitive("string")),
        Field("q", Primitive("timestamp")),
    )
)
PARTITIONS: Final = ("p", "q")
EVOLVED: Final = Struct((*SCHEMA.fields, Field("later", Primitive("string"))))


def a_row(number: int) -> dict[str, Any]:
    """Rows whose values are hard to bound."""
    return {
        "id": number,
        "small": number - 5,
        "text": None if number % 5 == 4 else f"{LONG_TEXT}{number:03d}",
        "amount": Decimal(number * 10**15) / 100 + Decimal("0.01"),
        "ratio": math.nan if number % 4 == 3 else number / 2,
        "flag": number % 2 == 0,
        "raw": bytes([number, 255]),
        "day": dt.date(2026, 1, 1) + dt.timedelta(days=number),
        "at": MOMENT + dt.timedelta(microseconds=333 * number),
        "point": None if number % 3 == 2 else {"x": number / 4, "label": f"l{number}"},
        "tags": [f"t{number}", None],
        "counts": {"n": number},
    }


@dataclass
class OurTable:
    """A table under a folder, written version by version."""

    folder: Path
    replay: Replay = field(default_factory=Replay)
    rows: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """The rows of every file that was ever added, by the path in its action."""

    @property
    def log(self) -> Path:
        return self.folder / "_delta_log"

    def commit(self, *actions: Action, info: CommitInfo | None = None) -> int:
        version = self.replay.version + 1
        self.log.mkdir(parents=True, exist_ok=True)
        said = CommitInfo(START_MS + version, "WRITE", {}, {"txnId": f"t{version}"}) if info is None else info
        (self.log / f"{version:020d}.json").write_bytes(commit_file(actions, said))
        self.replay.apply(version, actions)
        if newest_due(version - 1, version) == version:
            state = self.replay.state()
            file = checkpoint_file(state, tombstones_after_ms=0)
            (self.log / f"{version:020d}.checkpoint.parquet").write_bytes(file)
            (self.log / "_last_checkpoint").write_bytes(last_checkpoint_file(state, file, tombstones_after_ms=0))
        return version

    def file(self, number: int, schema: Struct, rows: Sequence[Mapping[str, Any]], partition: Mapping[str, Any]) -> Add:
        """Write a data file, one row a row group, and describe it."""
        columns = [one for one in schema.fields if one.name not in partition]
        values = {name: value_text(value, _type(schema, name)) for name, value in partition.items()}
        where = "/".join(filter(None, ["data", partition_path(values, list(partition)), f"part-{number}.parquet"]))
        path = self.folder / where
        path.parent.mkdir(parents=True, exist_ok=True)
        arrow = engine_types.to_arrow(Struct(tuple(columns)))
        pq.write_table(pa.Table.from_pylist(list(rows), arrow), path, row_group_size=1)
        found = add_action(
            where,
            pq.read_metadata(path),
            schema,
            size=path.stat().st_size,
            modification_time=START_MS,
            partition_values=values,
        )
        every = {one.name: None for one in EVOLVED.fields} if schema in (SCHEMA, EVOLVED) else {}
        self.rows[found.path] = [{**every, **row, **partition} for row in rows]
        return found

    def live_rows(self) -> list[dict[str, Any]]:
        found = [row for path, _ in self.replay.files for row in self.rows[path]]
        return sorted(found, key=lambda row: int(row["id"]))


def removal(add: Add) -> Remove:
    return Remove(add.path, START_MS, True, add.partition_values, add.size)


def our_table(folder: Path) -> OurTable:
    """Thirteen versions: partitions with odd names, removes, an evolved schema, an application, a checkpoint."""
    table = OurTable(folder)
    metadata = Metadata(
        id="0198e5f2-0000-7000-8000-000000000001",
        schema_string=schemas.dump(SCHEMA),
        partition_columns=PARTITIONS,
        configuration=dict(MANAGED_CONFIGURATION),
        created_time=START_MS,
    )
    table.commit(managed_protocol(SCHEMA), metadata)
    places = ({"p": ODD, "q": MOMENT}, {"p": None, "q": None}, {"p": "x", "q": MOMENT.replace(microsecond=0)})
    schema, added = SCHEMA, []
    for number in range(1, 13):
        actions: list[Action] = [Txn("loader", number)]
        if number == 6:
            schema = EVOLVED
            actions.append(replace(metadata, schema_string=schemas.dump(EVOLVED)))
        rows = [a_row(number * 2), a_row(number * 2 + 1)]
        if schema is EVOLVED:
            rows = [{**row, "later": f"new{row['id']}"} for row in rows]
        added.append(table.file(number, schema, rows, places[number % 3]))
        actions.append(added[-1])
        if number in (4, 8, 12):
            actions.append(removal(added[number - 3]))
        table.commit(*actions)
    assert table.replay.version == 12
    return table


def a_delta_rs_table(folder: Path) -> Path:
    def rows(first: int, **more: Any) -> pa.Table:
        columns = {
            "id": [first, first + 1],
            "p": [ODD, None],
            "at": pa.array([MOMENT, None], pa.timestamp("us", "UTC")),
            "q": pa.array([MOMENT, None], pa.timestamp("us", "UTC")),
        }
        return pa.table(columns | more)

    write_deltalake(folder, rows(0), partition_by=["p", "q"])
    write_deltalake(folder, rows(2), mode="append")
    DeltaTable(folder).delete("id = 0")
    write_deltalake(folder, rows(4, new=["x", None]), mode="append", schema_mode="merge")
    DeltaTable(folder).create_checkpoint()
    write_deltalake(folder, rows(6, new=["y", "z"]), mode="append")
    DeltaTable(folder).update(predicate="id = 6", updates={"new": "'changed'"})
    write_deltalake(folder, rows(8, new=["y", "z"]), mode="overwrite", predicate="id > 5")
    return folder


def taken_over(folder: Path) -> int:
    """Make somebody else's table ours, with its next version."""
    log = folder / "_delta_log"
    state = read_state(listed(log), lambda name: (log / name).read_bytes())
    version = state.version + 1
    actions = take_over(state.protocol, state.metadata, version=version, timestamp_ms=LATER_MS)
    return OurTable(folder, Replay(state)).commit(*actions, info=CommitInfo(LATER_MS, "TAKE OVER"))


def listed(log: Path) -> list[LogFile]:
    return [LogFile(path.name, path.stat().st_mtime_ns // 1_000_000) for path in log.iterdir() if path.is_file()]


def on_disk(folder: Path, add_path: str) -> Path:
    return folder / decode_path(add_path)


def plain(value: Any) -> Any:
    """A value such that equal ones are equal, whichever engine gave it."""
    match value:
        case float():
            return "NaN" if math.isnan(value) else value
        case dt.datetime():
            return value.astimezone(dt.UTC)
        case bytes() | bytearray():
            return bytes(value)
        case dict():
            return {key: plain(inner) for key, inner in value.items()}
        case list() | tuple():
            if value and all(isinstance(one, tuple) for one in value):
                return {key: plain(inner) for key, inner in value}
            return [plain(one) for one in value]
        case _:
            return value


def plain_rows(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [{name: plain(value) for name, value in row.items()} for row in sorted(rows, key=lambda row: row["id"])]


def _type(schema: Struct, name: str) -> schemas.DataType:
    found = schema.find(name)
    assert found is not None
    return found.type
