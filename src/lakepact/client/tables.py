"""Tables as plain metadata, on main or inside a transaction; and cuts: several tables as of one instant."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from lakepact.client.caller import Caller
from lakepact.client.display import html_facts, html_rows
from lakepact.client.errors import NotFound
from lakepact.client.names import (
    Identifier,
    Name,
    document_of,
    identifier_of,
    levels_segment,
    namespace_name,
    segment,
    shown,
    table_name,
)

if TYPE_CHECKING:
    from pyiceberg.table import StaticTable

_MAIN: Final = "main"
"""Iceberg's name of the branch that is read by default."""


@dataclass(frozen=True, slots=True)
class LoadedTable:
    """An Iceberg table as it was at one instant.

    table = lake.tables.load("sales.orders")
    table.metadata["schemas"], table.snapshot_id
    table.pyiceberg().scan().to_arrow()
    """

    identifier: Identifier
    """The levels of its namespace and its name: `("sales", "orders")`."""

    metadata_location: str
    """Where its metadata file is."""

    metadata: Mapping[str, Any] = field(repr=False)
    """Iceberg's table metadata, as it is stored."""

    config: Mapping[str, str] = field(default_factory=dict, repr=False)
    """What the server says about access to its files."""

    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    """What the client was connected with, for access to files."""

    @property
    def name(self) -> str:
        """The name as people write it: `sales.orders`."""
        return shown(self.identifier)

    @property
    def uuid(self) -> str:
        """The table's id, which stays when the table is renamed."""
        return str(self.metadata["table-uuid"])

    @property
    def snapshot_id(self) -> int | None:
        """The current snapshot, None for a table without data."""
        current = self.metadata.get("current-snapshot-id")
        return None if current is None or current == -1 else int(current)

    def pyiceberg(self) -> StaticTable:
        """Return the table for reading with PyIceberg, as it was at this instant: it does not refresh.

        cut = lake.read_at(["sales.orders", "sales.daily"])
        cut["sales.orders"].pyiceberg().scan().to_arrow()
        """
        from lakepact.client.pyiceberg import static_table

        return static_table(self)

    def _repr_html_(self) -> str:
        schema = _schema_of(self.metadata)
        facts = {"location": self.metadata.get("location"), "snapshot": self.snapshot_id, "id": self.uuid}
        columns = html_rows(
            "",
            ("column", "type", "required"),
            ((one["name"], _type_text(one["type"]), "yes" if one["required"] else "no") for one in schema["fields"]),
        )
        return html_facts(self.name, facts) + columns


@dataclass(frozen=True, slots=True)
class DroppedTable:
    """A table or view that was dropped, and may come back: `lake.tables.dropped()`."""

    identifier: Identifier
    """The levels of its namespace and its name."""

    id: str
    """Its id, for `lake.tables.undrop(id=…)`."""

    kind: str
    """`table`, `view` or `delta`."""

    location: str
    """Where its files are."""

    metadata_location: str
    """Its newest metadata file."""

    dropped_ms: int
    """When it was dropped, in milliseconds since 1970."""

    retained_until_ms: int
    """Until then its location is its own, and nothing of it is deleted."""

    purge: bool
    """Whether its files shall be deleted after that. Otherwise they stay for good."""

    state: str
    """`restorable`, `expired` (collection has not come yet), `released` (its files stay), or `purging`."""

    @property
    def name(self) -> str:
        """The name as people write it: `sales.orders`."""
        return shown(self.identifier)


class Cut(Mapping[Name, LoadedTable]):
    """Several tables as of one instant, by name.

    cut = lake.read_at(["sales.orders", "sales.daily"])
    cut["sales.orders"].snapshot_id
    """

    def __init__(self, tables: Iterable[LoadedTable]) -> None:
        self._tables = {table.identifier: table for table in tables}

    def __getitem__(self, name: Name) -> LoadedTable:
        return self._tables[table_name(name)]

    def __iter__(self) -> Iterator[Identifier]:
        return iter(self._tables)

    def __len__(self) -> int:
        return len(self._tables)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str | tuple) and table_name(name) in self._tables

    def __repr__(self) -> str:
        return f"Cut({', '.join(table.name for table in self._tables.values())})"

    def _repr_html_(self) -> str:
        rows = ((table.name, table.snapshot_id, table.metadata.get("location")) for table in self._tables.values())
        return html_rows("Tables as of one instant", ("table", "snapshot", "location"), rows)


class Tables:
    """Iceberg tables as plain metadata, on main (`lake.tables`) or inside a transaction (`tx.tables`).

        lake.tables.list("sales")                 # (("sales", "orders"),)
        lake.tables.load("sales.orders").metadata # Iceberg's table metadata
        lake.tables.rename("sales.orders", "sales.orders_2026")

    Rows are read and written with `lake.read` and `lake.write`, or with `lake.pyiceberg()`. Delta tables are in
    `lake.delta`.
    """

    def __init__(self, caller: Caller, properties: Mapping[str, str] | None = None) -> None:
        self._caller = caller
        self._properties = dict(properties or {})

    def __repr__(self) -> str:
        return f"Tables({self._caller.prefix})"

    def _repr_html_(self) -> str:
        listed = ("list(namespace)", "load(name)", "create(name, schema)", "drop(name)", "rename(source, target)")
        rows = [(f".{call}", (getattr(self, call.partition("(")[0]).__doc__ or "").splitlines()[0]) for call in listed]
        return html_rows(f"Tables of {self._caller.prefix}", ("method", "what it does"), rows)

    def list(self, namespace: Name) -> tuple[Identifier, ...]:
        """List the Iceberg tables of a namespace. Raises `NotFound` if there is no such namespace.

        lake.tables.list("sales")  # (("sales", "orders"),)
        """
        answer = self._caller.read(_tables(namespace_name(namespace))).json()
        return tuple(identifier_of(one) for one in answer["identifiers"])

    def load(self, name: Name) -> LoadedTable:
        """Load the table as it is now. Raises `NotFound`.

        lake.tables.load("sales.orders").snapshot_id
        """
        identifier = table_name(name)
        return self._loaded(identifier, self._caller.read(_table(identifier)).json())

    def load_many(self, names: Name | Iterable[Name], at: datetime | None = None) -> Cut:
        """Load tables as of one instant. Raises `NotFound` if one of them is not there.

            lake.tables.load_many(["sales.orders", "sales.daily"])

        With `at`, each table is as its snapshot log says it was at that time. See `lake.read_at`.
        """
        identifiers = [document_of(one) for one in dict.fromkeys(table_name(name) for name in _names(names))]
        if at is not None:
            epoch_ms(at)
        if not identifiers:
            return Cut(())
        answer = self._caller.read("{prefix}/tables/batch-load", body={"identifiers": identifiers}, method="POST")
        loaded = [self._loaded(identifier_of(one["identifier"]), one) for one in answer.json()["results"]]
        return Cut(loaded if at is None else [_as_of(table, at) for table in loaded])

    def exists(self, name: Name) -> bool:
        """Return whether there is an Iceberg table of this name.

        lake.tables.exists("sales.orders")
        """
        try:
            self._caller.read(_table(table_name(name)), method="HEAD")
        except NotFound:
            return False
        return True

    def create(
        self,
        name: Name,
        schema: Mapping[str, Any],
        *,
        partition_spec: Mapping[str, Any] | None = None,
        write_order: Mapping[str, Any] | None = None,
        location: str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> LoadedTable:
        """Create an empty table. Raises `AlreadyExists`, or `NotFound` for a namespace that is not there.

            fields = [{"id": 1, "name": "id", "required": False, "type": "long"}]
            lake.tables.create("sales.orders", {"type": "struct", "fields": fields})

        `schema`, `partition_spec` and `write_order` are documents as Iceberg specifies them. `lake.write` and
        `lake.pyiceberg().create_table` take Arrow's types.
        """
        identifier = table_name(name)
        optional = {"partition-spec": partition_spec, "write-order": write_order, "location": location}
        body = {
            "name": identifier[-1],
            "schema": schema,
            "properties": dict(properties or {}),
            **{key: value for key, value in optional.items() if value is not None},
        }
        return self._loaded(identifier, self._caller.change("POST", _tables(identifier[:-1]), body=body).json())

    def drop(self, name: Name, *, purge: bool = False) -> None:
        """Take the table out of the catalog. `purge` asks for its files to be deleted too, if the server does that.

        lake.tables.drop("sales.orders")
        """
        query = {"purgeRequested": "true"} if purge else None
        self._caller.change("DELETE", _table(table_name(name)), query=query)

    def dropped(self) -> tuple[DroppedTable, ...]:
        """List what was dropped and can come back, or is being deleted: tables of both formats, and views.

        [one.name for one in lake.tables.dropped()]
        """
        found: list[DroppedTable] = []
        token = ""
        while True:
            answer = self._caller.read("{prefix}/dropped", query={"pageToken": token}).json()
            found += [_dropped(one) for one in answer["dropped"]]
            token = answer.get("next-page-token")
            if token is None:
                return tuple(sorted(found, key=lambda one: (one.identifier, one.dropped_ms)))

    def undrop(self, name: Name | None = None, *, id: str | None = None, to: Name | None = None) -> Identifier:
        """Restore a dropped table of either format, or a view: the one with this `id`, or the last of this name.

            lake.tables.undrop("sales.orders", to="sales.orders_old")

        It comes back under its own name or `to`. Raises `NotFound`, and `AlreadyExists` for a name that is taken.
        """
        if name is None and id is None:
            raise ValueError("undrop needs the name of a table, or its id")
        body = {
            **({} if name is None else {"identifier": document_of(table_name(name))}),
            **({} if id is None else {"id": id}),
            **({} if to is None else {"destination": document_of(table_name(to))}),
        }
        return identifier_of(self._caller.change("POST", "{prefix}/tables/undrop", body=body).json()["identifier"])

    def rename(self, source: Name, target: Name) -> None:
        """Rename a table, into another namespace too. Raises `NotFound` and `AlreadyExists`.

        lake.tables.rename("sales.orders", "archive.orders")
        """
        body = {"source": document_of(table_name(source)), "destination": document_of(table_name(target))}
        self._caller.change("POST", "{prefix}/tables/rename", body=body)

    def register(self, name: Name, metadata_location: str, *, overwrite: bool = False) -> LoadedTable:
        """Take over a table by its metadata file. `overwrite` moves a table that is there already to that file.

        lake.tables.register("sales.orders", "s3://lake/sales/orders/metadata/00004-….metadata.json")
        """
        identifier = table_name(name)
        body = {"name": identifier[-1], "metadata-location": metadata_location, "overwrite": overwrite}
        path = f"{{prefix}}/namespaces/{levels_segment(identifier[:-1])}/register"
        return self._loaded(identifier, self._caller.change("POST", path, body=body).json())

    def governance(self, name: Name) -> dict[str, Any]:
        """Return a table's or view's `owner`, `description`, `tags`, and whether it is `protected`.

        lake.tables.governance("sales.orders")["owner"]
        """
        answer: dict[str, Any] = self._caller.read(f"{_table(table_name(name))}/governance").json()
        return answer

    def govern(self, name: Name, **fields: Any) -> dict[str, Any]:
        """Set these governance fields and leave the others; None clears one. Returns all of them.

        lake.tables.govern("sales.orders", owner="ann", protected=True)
        """
        path = f"{_table(table_name(name))}/governance"
        answer: dict[str, Any] = self._caller.change("PUT", path, body=fields).json()
        return answer

    def _loaded(self, identifier: Identifier, answer: Mapping[str, Any]) -> LoadedTable:
        return LoadedTable(
            identifier, answer["metadata-location"], answer["metadata"], answer.get("config") or {}, self._properties
        )


def epoch_ms(at: datetime) -> int:
    """The time in milliseconds since 1970. Raises `ValueError` for a time without a time zone."""
    if not isinstance(at, datetime):
        raise TypeError(f"at is a datetime with a time zone, not {at!r}")
    if at.tzinfo is None:
        raise ValueError(f"{at.isoformat()} has no time zone: write datetime(…, tzinfo=timezone.utc)")
    return int(at.timestamp() * 1000)


def snapshot_at(name: str, metadata: Mapping[str, Any], at: datetime) -> int:
    """The snapshot that was current at this time, by the table's snapshot log."""
    at_ms = epoch_ms(at)
    log = sorted(metadata.get("snapshot-log") or (), key=lambda entry: int(entry["timestamp-ms"]))
    earlier = [entry for entry in log if int(entry["timestamp-ms"]) <= at_ms]
    if not earlier:
        raise ValueError(f"{name} has no snapshot at or before {at.isoformat()} in its snapshot log")
    snapshot_id = int(earlier[-1]["snapshot-id"])
    if snapshot_id not in {int(one["snapshot-id"]) for one in metadata.get("snapshots") or ()}:
        raise ValueError(f"{name}: snapshot {snapshot_id}, current at {at.isoformat()}, has expired")
    return snapshot_id


def _as_of(table: LoadedTable, at: datetime) -> LoadedTable:
    """The table with the snapshot of that time as its current one, and with that snapshot's schema."""
    metadata = dict(table.metadata)
    snapshot_id = snapshot_at(table.name, metadata, at)
    [snapshot] = [one for one in metadata["snapshots"] if int(one["snapshot-id"]) == snapshot_id]
    metadata["current-snapshot-id"] = snapshot_id
    metadata["current-schema-id"] = snapshot.get("schema-id", metadata["current-schema-id"])
    refs = dict(metadata.get("refs") or {})
    metadata["refs"] = {**refs, _MAIN: {**refs.get(_MAIN, {"type": "branch"}), "snapshot-id": snapshot_id}}
    return replace(table, metadata=metadata)


def _names(names: Name | Iterable[Name]) -> Iterable[Name]:
    """The names of several tables, or of one: a string is one name, not one name a letter."""
    if isinstance(names, str):
        return [names]
    if isinstance(names, tuple) and names and all(isinstance(one, str) and "." not in one for one in names):
        levels = ", ".join(map(repr, names))
        raise ValueError(f"({levels}) could be one table or several: write [({levels})] for one table")
    return names


def _schema_of(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    current = metadata.get("current-schema-id")
    schemas = metadata.get("schemas") or [metadata["schema"]]
    found: Mapping[str, Any] = next((one for one in schemas if one.get("schema-id") == current), schemas[-1])
    return found


def _type_text(type_: Any) -> str:
    return type_ if isinstance(type_, str) else str(type_["type"])


def _dropped(answer: Mapping[str, Any]) -> DroppedTable:
    return DroppedTable(
        identifier_of(answer["identifier"]),
        answer["id"],
        answer["kind"],
        answer["location"],
        answer["metadata-location"],
        answer["dropped-ms"],
        answer["retained-until-ms"],
        answer["purge"],
        answer["state"],
    )


def _tables(namespace: Identifier) -> str:
    return f"{{prefix}}/namespaces/{levels_segment(namespace)}/tables"


def _table(identifier: Identifier) -> str:
    return f"{_tables(identifier[:-1])}/{segment(identifier[-1])}"
