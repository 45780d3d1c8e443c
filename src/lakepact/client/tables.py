"""Tables as plain metadata, on main or inside a transaction; and cuts: several tables as of one instant."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lakepact.client.caller import Caller
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


@dataclass(frozen=True, slots=True)
class LoadedTable:
    """A table as it was at one instant."""

    identifier: Identifier
    metadata_location: str
    metadata: Mapping[str, Any] = field(repr=False)
    """Iceberg's table metadata, as it is stored."""

    config: Mapping[str, str] = field(default_factory=dict, repr=False)
    """What the server says about access to its files."""

    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    """What the client was connected with, for access to files."""

    @property
    def name(self) -> str:
        return shown(self.identifier)

    @property
    def uuid(self) -> str:
        return str(self.metadata["table-uuid"])

    @property
    def snapshot_id(self) -> int | None:
        """The current snapshot, None for a table without data."""
        current = self.metadata.get("current-snapshot-id")
        return None if current is None or current == -1 else int(current)

    def pyiceberg(self) -> StaticTable:
        """The table for reading with PyIceberg, as it was at this instant: it does not refresh."""
        from lakepact.client.pyiceberg import static_table

        return static_table(self)


@dataclass(frozen=True, slots=True)
class DroppedTable:
    """A table or view that was dropped, and may come back."""

    identifier: Identifier
    id: str
    kind: str
    """`table`, `view` or `delta`."""

    location: str
    metadata_location: str
    dropped_ms: int
    retained_until_ms: int
    """Until then its location is its own, and nothing of it is deleted."""

    purge: bool
    """Whether its files shall be deleted after that. Otherwise they stay for good."""

    state: str
    """`restorable`, `expired` (collection has not come yet), `released` (its files stay), or `purging`."""

    @property
    def name(self) -> str:
        return shown(self.identifier)


class Cut(Mapping[Name, LoadedTable]):
    """Several tables as of one instant, by name."""

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


class Tables:
    def __init__(self, caller: Caller, properties: Mapping[str, str] | None = None) -> None:
        self._caller = caller
        self._properties = dict(properties or {})

    def list(self, namespace: Name) -> tuple[Identifier, ...]:
        """The tables of a namespace. Raises `NotFound` if there is no such namespace."""
        answer = self._caller.read(_tables(namespace_name(namespace))).json()
        return tuple(identifier_of(one) for one in answer["identifiers"])

    def load(self, name: Name) -> LoadedTable:
        """The table as it is now. Raises `NotFound`."""
        identifier = table_name(name)
        return self._loaded(identifier, self._caller.read(_table(identifier)).json())

    def load_many(self, names: Iterable[Name]) -> Cut:
        """Tables as of one instant. Raises `NotFound` if one of them is not there."""
        identifiers = [document_of(one) for one in dict.fromkeys(table_name(name) for name in names)]
        if not identifiers:
            return Cut(())
        answer = self._caller.read("{prefix}/tables/batch-load", body={"identifiers": identifiers}, method="POST")
        return Cut(self._loaded(identifier_of(one["identifier"]), one) for one in answer.json()["results"])

    def exists(self, name: Name) -> bool:
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
        """Create an empty table. `schema`, `partition_spec` and `write_order` are documents as Iceberg specifies them;
        with PyIceberg at hand, `lake.pyiceberg().create_table` takes its own and Arrow's types."""
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
        """Take the table out of the catalog. `purge` asks for its files to be deleted too, if the server does that."""
        query = {"purgeRequested": "true"} if purge else None
        self._caller.change("DELETE", _table(table_name(name)), query=query)

    def dropped(self) -> tuple[DroppedTable, ...]:
        """What was dropped and can come back, or is being deleted: tables of both formats, and views."""
        found: list[DroppedTable] = []
        token = ""
        while True:
            answer = self._caller.read("{prefix}/dropped", query={"pageToken": token}).json()
            found += [_dropped(one) for one in answer["dropped"]]
            token = answer.get("next-page-token")
            if token is None:
                return tuple(sorted(found, key=lambda one: (one.identifier, one.dropped_ms)))

    def undrop(self, name: Name | None = None, *, id: str | None = None, to: Name | None = None) -> Identifier:
        """Bring back what was dropped, of either format, or a view: the one with this `id`, or the one dropped last
        under this name. It comes back under its own name or `to`. Raises `NotFound`, and `AlreadyExists` for a name
        that is taken.
        """
        if name is None and id is None:
            raise ValueError("name what shall come back, or give its id")
        body = {
            **({} if name is None else {"identifier": document_of(table_name(name))}),
            **({} if id is None else {"id": id}),
            **({} if to is None else {"destination": document_of(table_name(to))}),
        }
        return identifier_of(self._caller.change("POST", "{prefix}/tables/undrop", body=body).json()["identifier"])

    def rename(self, source: Name, target: Name) -> None:
        body = {"source": document_of(table_name(source)), "destination": document_of(table_name(target))}
        self._caller.change("POST", "{prefix}/tables/rename", body=body)

    def register(self, name: Name, metadata_location: str, *, overwrite: bool = False) -> LoadedTable:
        """Take over a table by its metadata file. `overwrite` moves a table that is there already to that file."""
        identifier = table_name(name)
        body = {"name": identifier[-1], "metadata-location": metadata_location, "overwrite": overwrite}
        path = f"{{prefix}}/namespaces/{levels_segment(identifier[:-1])}/register"
        return self._loaded(identifier, self._caller.change("POST", path, body=body).json())

    def governance(self, name: Name) -> dict[str, Any]:
        """What people say about a table or view: `owner`, `description`, `tags`, and whether it is `protected`."""
        answer: dict[str, Any] = self._caller.read(f"{_table(table_name(name))}/governance").json()
        return answer

    def govern(self, name: Name, **fields: Any) -> dict[str, Any]:
        """Set these fields and leave the others; None sets one back. What is said then."""
        path = f"{_table(table_name(name))}/governance"
        answer: dict[str, Any] = self._caller.change("PUT", path, body=fields).json()
        return answer

    def _loaded(self, identifier: Identifier, answer: Mapping[str, Any]) -> LoadedTable:
        return LoadedTable(
            identifier, answer["metadata-location"], answer["metadata"], answer.get("config") or {}, self._properties
        )


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
