"""The state of one fold over one table: a document that is copied where it is touched, and what this request added.

Metadata of a busy table has thousands of snapshots, so nothing is copied deeply: the top level is a new `dict`, a list
or object below it is copied when an update first changes it, and snapshots and schemas are never changed in place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lakepact.iceberg.columns import Columns, columns_of
from lakepact.iceberg.errors import InvalidUpdate
from lakepact.iceberg.fields import JsonObject
from lakepact.iceberg.names import NO_SNAPSHOT


@dataclass(frozen=True, slots=True)
class Context:
    """What a fold needs to know and cannot decide: the time, and where things are."""

    now_ms: int
    previous_location: str | None = None
    """The metadata file the base was read from. It goes into the metadata log of the next version."""

    new_uuid: str | None = None
    """The uuid of a table that is created, if the updates assign none."""

    new_location: str | None = None
    """The location of a table that is created, if the updates set none."""


class Draft:
    """A table's next metadata while updates are applied to it. Lives for one fold, and belongs to it alone."""

    def __init__(self, base: JsonObject | None, context: Context, empty: JsonObject | None = None) -> None:
        """Without a base the table is created, from `empty`, which is the draft's to change."""
        self.base = base
        self.context = context
        self.document: JsonObject = dict(base if base is not None else empty or {})
        self.updated_ms = context.now_ms if base is None else max(context.now_ms, base["last-updated-ms"])
        """When this change happens. A clock that went back must not make metadata older than its predecessor."""

        self.last_schema_id: int | None = None
        self.last_spec_id: int | None = None
        self.last_order_id: int | None = None
        self.added_schema_ids: set[int] = set()
        self.added_snapshot_ids: set[int] = set()
        self.passed_main: list[int] = []
        """Snapshots of this request that it made current, in order: all but the last were never seen by anybody."""

        self.removed_snapshots = False
        self.sequence_number: int = self.document.get("last-sequence-number", 0)
        """The number of the snapshot before: of this request, once it has added one."""

        self._own: set[str] = set() if base is not None else set(self.document)
        self._snapshots: dict[int, JsonObject] | None = None
        self._columns: dict[int, tuple[JsonObject, Columns]] = {}
        """By the identity of the schema: an id may be given again to another one."""

        self._indexes: dict[Callable[..., None], tuple[str, int, dict[Any, Any]]] = {}
        self._fitting: dict[tuple[int, int], JsonObject] = {}
        """What `once` has checked. It keeps the objects, so that no other one gets their identity."""

    # --- lists and objects of the document ---

    def seen(self, name: str) -> list[Any]:
        """A list to look at."""
        values: list[Any] = self.document.get(name) or []
        return values

    def owned(self, name: str) -> list[Any]:
        """A list to change."""
        if name not in self._own or self.document.get(name) is None:
            self.document[name] = list(self.document.get(name) or ())
            self._own.add(name)
        values: list[Any] = self.document[name]
        return values

    def owned_object(self, name: str) -> JsonObject:
        """An object to change."""
        if name not in self._own or self.document.get(name) is None:
            self.document[name] = dict(self.document.get(name) or {})
            self._own.add(name)
        value: JsonObject = self.document[name]
        return value

    def replace(self, name: str, values: list[Any]) -> None:
        """Put a list of the draft's own in the place of one."""
        self.document[name] = values
        self._own.add(name)
        self._indexes = {add: index for add, index in self._indexes.items() if index[0] != name}

    def index(self, name: str, add: Callable[[dict[Any, Any], JsonObject], None]) -> dict[Any, Any]:
        """An index of a list, which `add` builds element by element.

        It is kept between updates, and elements that were appended meanwhile are added: a request with many updates
        costs what it adds, not the product with what is there.
        """
        _, count, index = self._indexes.get(add, (name, 0, {}))
        values = self.seen(name)
        for value in values[count:]:
            add(index, value)
        self._indexes[add] = name, len(values), index
        return index

    # --- what updates ask for again and again ---

    @property
    def format_version(self) -> int:
        version: int = self.document["format-version"]
        return version

    @property
    def snapshots(self) -> dict[int, JsonObject]:
        """The snapshots by id. Whoever changes the list changes this too."""
        if self._snapshots is None:
            self._snapshots = {snapshot["snapshot-id"]: snapshot for snapshot in self.seen("snapshots")}
        return self._snapshots

    @property
    def current_snapshot_id(self) -> int | None:
        current: int | None = self.document.get("current-snapshot-id")
        return None if current == NO_SNAPSHOT else current

    @current_snapshot_id.setter
    def current_snapshot_id(self, snapshot_id: int | None) -> None:
        # Format 3 writes null where the earlier ones write -1.
        if snapshot_id is None and self.format_version < 3:
            snapshot_id = NO_SNAPSHOT
        self.document["current-snapshot-id"] = snapshot_id

    def columns(self) -> Columns:
        """The columns of the current schema."""
        schema_id: int = self.document["current-schema-id"]
        schema = next((one for one in self.seen("schemas") if one.get("schema-id", 0) == schema_id), None)
        if schema is None:
            raise InvalidUpdate(f"there is no schema {schema_id}; add a schema and make it current first")
        if id(schema) not in self._columns:
            self._columns[id(schema)] = schema, columns_of(schema)
        return self._columns[id(schema)][1]

    def once(self, check: Callable[[JsonObject, Columns], None], value: JsonObject, columns: Columns) -> None:
        """Check a part of this document against these columns, unless that was done before in this draft."""
        pair = id(value), id(columns)
        if pair not in self._fitting:
            check(value, columns)
            self._fitting[pair] = value
