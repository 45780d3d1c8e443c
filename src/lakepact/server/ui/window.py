"""One warehouse as whoever asks may see it: what a page looks through.

Pages get a `Window` from `Windows` and nothing else, so none of them can forget to ask who looks. What a window shows
is limited already: `find` and what changes something go through the guarded catalog, and everything with many names in
it, lists, receipts, records and reports, is gone through by the modules that make it, with the window's `sight`.

`inside` is for these modules alone: a test holds that no page touches it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from lakepact.access import Principal
from lakepact.access.rules import RULES
from lakepact.catalog import Catalog
from lakepact.catalog.audit import AuditPage, Position, Wanted
from lakepact.catalog.delta_tables import DeltaTable
from lakepact.catalog.errors import Forbidden
from lakepact.catalog.files import MetadataFile
from lakepact.catalog.governance import shown_of
from lakepact.catalog.names import missing
from lakepact.catalog.pointers import Kind, Pointer, scope_of, shown
from lakepact.catalog.sight import seen_by
from lakepact.catalog.trail import Trail
from lakepact.catalog.transactions import Transactions
from lakepact.catalog.visibility import Visibility
from lakepact.catalog.work import Call
from lakepact.delta.actions import Add, Remove
from lakepact.delta.ports import DeltaRows, MirrorRow, VersionRow
from lakepact.errors import InvalidRequest, LakepactError
from lakepact.iceberg.fields import JsonObject
from lakepact.iceberg.requests import Identifier
from lakepact.upkeep.lease import UPKEEP

_MOST_ACTIONS: Final = 20_000
_MOST_VERSIONS: Final = 200


@dataclass(frozen=True, slots=True)
class Sized:
    """How large a Delta table was at a version."""

    version: int
    at_ms: int
    bytes: int
    files: int


class Window:
    """One serves one request."""

    def __init__(
        self, catalog: Catalog, principal: Principal, sight: Visibility, *, trail: Trail, rows: DeltaRows | None
    ) -> None:
        self.inside = catalog
        self.principal = principal
        self.sight = sight
        self._guarded = seen_by(catalog, principal, trail)
        self._rows = rows

    @property
    def warehouse(self) -> str:
        return self.inside.warehouse.name

    @property
    def root(self) -> str:
        """Where the warehouse is."""
        return self.inside.warehouse.root

    @property
    def whole(self) -> bool:
        """Whether all of the warehouse is in sight."""
        return self.sight.whole

    def now_ms(self) -> int:
        return self.inside.now_ms()

    def need_whole(self, what: str) -> None:
        """`what`: what is asked for, as the beginning of a sentence."""
        if not self.whole:
            raise Forbidden(
                f"{what} for those who may read all of warehouse {self.warehouse}. Ask whoever manages it for the role "
                f"read on the warehouse: lakepact grants add user:{self.principal.name} read"
            )

    @property
    def transactions(self) -> Transactions:
        """Those that one may work in: one's own, or all of them for those who manage the warehouse."""
        return self._guarded.transactions

    async def upkeep(self) -> Mapping[str, Any]:
        """The lease of upkeep, which tells of its last passes; for those who may read all of the warehouse."""
        self.need_whole("Upkeep is")
        return (await self.inside.parts.store.read([UPKEEP]))[UPKEEP].value or {}

    async def audit(self, before: Position | None, wanted: Wanted, limit: int) -> AuditPage:
        """A page of the audit trail; for those who manage the warehouse."""
        return await self._guarded.audit_page(before, wanted, limit)

    # --- tables and views ---

    async def find(self, identifier: Identifier) -> Pointer:
        """What a name stands for. Raises `NoSuchTable`, also for what may not be seen."""
        if not identifier.name or not identifier.namespace or not all(identifier.namespace):
            raise missing(identifier, Kind.TABLE)
        return await self._guarded.thing(identifier)

    async def neighbour(self, identifier: Identifier) -> Pointer | None:
        """The same for what a page is only near to: nobody has asked for it by name."""
        try:
            found = await self.inside.thing(identifier)
        except LakepactError:
            return None
        seen = self.sight.rights.on_thing(found.identifier.namespace, scope_of(found)) is not None
        return found if seen else None

    async def revision(self, pointer: Pointer) -> int:
        """How often the table's cell has changed."""
        key = self.inside.names.pointer_key(pointer)
        return (await self.inside.parts.store.read([key]))[key].revision

    async def governance(self, pointer: Pointer) -> tuple[JsonObject, int]:
        """What people say about it, and how often that has changed."""
        key = self.inside.parts.keys.governance(pointer.id)
        cell = (await self.inside.parts.store.read([key]))[key]
        return shown_of(cell), cell.revision

    def may_govern(self, pointer: Pointer) -> bool:
        held = self.sight.rights.on_thing(pointer.identifier.namespace, scope_of(pointer))
        return held is not None and held >= RULES["putGovernance"].needed

    def need_to_govern(self, pointer: Pointer) -> None:
        if not self.may_govern(pointer):
            raise Forbidden(
                f"to say something about {shown(pointer.identifier)} needs the role manage on it. Ask whoever manages "
                f"it, or the warehouse {self.warehouse}"
            )

    async def govern(self, pointer: Pointer, given: JsonObject) -> None:
        """Set these fields of what people say about it, as the API does."""
        source = {"kind": "admin", "client": "web page", "principal": self.principal.name}
        call = Call(self._guarded.new_id(), "putGovernance", source=source)
        await self._guarded.put_governance(call, pointer.identifier, given)

    async def metadata(self, pointer: Pointer) -> MetadataFile | LakepactError:
        """The metadata of what was found, or why it cannot be read."""
        try:
            return await self._guarded.file_of(pointer)
        except InvalidRequest:
            raise
        except LakepactError as error:
            return error

    # --- Delta ---

    async def delta(self, identifier: Identifier) -> DeltaTable:
        return await self._guarded.load_delta(identifier, files=True)

    async def delta_history(self, identifier: Identifier, before: int | None, limit: int) -> Sequence[VersionRow]:
        return await self._guarded.delta_history(identifier, before, limit)

    async def delta_sizes(self, table: DeltaTable, versions: Sequence[VersionRow]) -> list[Sized]:
        """How it grew, oldest first, as far back as can be told without reading too much."""
        if self._rows is None or not versions:
            return []
        first, budget = versions[0].version, _MOST_ACTIONS
        for row in versions[:_MOST_VERSIONS]:
            budget -= row.adds + row.removes
            if budget < 0:
                break
            first = row.version
        told = await self._rows.since(table.pointer.id, first, table.state.version)
        size, files = table.state.size_bytes, len(table.state.files)
        sizes: list[Sized] = []
        at = {row.version: row.info.timestamp_ms for row in versions}
        for version in reversed(told):
            sizes.append(Sized(version.row.version, version.row.info.timestamp_ms, size, files))
            for action in version.actions:
                if isinstance(action, Add):
                    size, files = size - action.size, files - 1
                elif isinstance(action, Remove):
                    size, files = size + (action.size or 0), files + 1
        if first in at:
            sizes.append(Sized(first, at[first], max(size, 0), max(files, 0)))
        return sizes[::-1]

    async def mirrors_of(self, pointer: Pointer) -> Sequence[MirrorRow]:
        return [] if self._rows is None else await self._rows.mirror_status(table_id=pointer.id)

    async def mirrors(self) -> list[tuple[str, MirrorRow]]:
        """Every mirror of a table of this warehouse, by the table's name; for those who may read all of them."""
        self.need_whole("Mirrors are")
        if self._rows is None:
            return []
        names = {one.table_id: f"{one.namespace}.{one.name}" for one in await self._rows.tables(self.warehouse)}
        status = await self._rows.mirror_status()
        return sorted(
            ((names[one.table_id], one) for one in status if one.table_id in names),
            key=lambda pair: (pair[0], pair[1].engine),
        )
