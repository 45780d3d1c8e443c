"""Delta tables as a catalog would keep them: a cell for what is compared, rows for what it says, one commit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lakepact.delta.actions import Action, Add, Metadata, Protocol, Remove
from lakepact.delta.beside import DeltaChanges, NewTable, NewVersion
from lakepact.delta.ports import DeltaRows, TableChange
from lakepact.kernel.identity import TransactionId
from lakepact.kernel.keys import Key, key_of
from lakepact.kernel.model import Committed, Transaction, Write
from lakepact.kernel.ports import CellStore
from lakepact.stores import delta_rows
from tests.conformance.cells.world import World

WAREHOUSE = "main"
SCHEMA = '{"type":"struct","fields":[]}'
PROTOCOL = Protocol(1, 7, None, ("appendOnly", "inCommitTimestamp"))


def add(path: str, **more: Any) -> Add:
    return Add(path, more.pop("partition_values", {}), 10, 1_000, **more)


def remove(path: str, **more: Any) -> Remove:
    return Remove(path, 2_000, **more)


def adds(*paths: str) -> list[Action]:
    return [add(path) for path in paths]


@dataclass(frozen=True)
class Change:
    """One version of one table, as it is going to be."""

    table_id: str
    version: int
    actions: Sequence[Action]


class Lake(World):
    """A world whose cells are Delta tables: a cell at revision n + 1 stands for version n."""

    @property
    def rows(self) -> DeltaRows:
        return self.rows_of(self.store)

    def rows_of(self, store: CellStore) -> DeltaRows:
        rows = delta_rows(store)
        assert rows is not None
        return rows

    def key(self, table_id: str) -> Key:
        return key_of(WAREHOUSE, "delta", table_id)

    async def create(self, *table_ids: str, engines: tuple[str, ...] = ()) -> None:
        """Tables at version 0, with metadata and protocol and no files."""
        actions: dict[str, list[Action]] = {one: [Metadata(one, SCHEMA), PROTOCOL] for one in table_ids}
        plan = self.plan([Change(table_id, 0, actions[table_id]) for table_id in table_ids])
        assert plan.beside is not None
        document = dict(plan.beside["delta"])
        document["create"] = DeltaChanges(
            WAREHOUSE, create=tuple(NewTable(one, ".ns", one, f"file:///{one}") for one in table_ids)
        ).document()["delta"]["create"]
        document["mirrors"] = [{"table_id": one, "engines": list(engines)} for one in table_ids]
        plan = replace(plan, beside={"delta": document})
        await self.put_rows(plan.id, [Change(one, 0, actions[one]) for one in table_ids])
        assert isinstance(await self.store.commit(plan), Committed)

    def plan(
        self,
        changes: Iterable[Change],
        *,
        id: TransactionId | None = None,
        revisions: Mapping[str, int] | None = None,
        more: Mapping[Key, tuple[int, Any]] | None = None,
        sealed: bool = False,
    ) -> Transaction:
        """The commit of these changes: each table's cell goes from its version to the next."""
        changes = list(changes)
        writes = [
            Write(self.key(one.table_id), (revisions or {}).get(one.table_id, one.version), {"version": one.version})
            for one in changes
        ]
        writes += [Write(key, revision, value) for key, (revision, value) in (more or {}).items()]
        return Transaction(
            id or self.id(),
            "",
            tuple(writes),
            answer={"ok": True},
            sealed=sealed,
            beside=self.beside(changes),
        )

    def beside(self, changes: Iterable[Change]) -> dict[str, Any]:
        versions = tuple(
            NewVersion(
                one.table_id,
                one.version,
                ict_ms=1_000 * (one.version + 1),
                operation="WRITE",
                adds=sum(isinstance(action, Add) for action in one.actions),
                removes=sum(isinstance(action, Remove) for action in one.actions),
                operation_params={"mode": "Append"},
                commit_info={"engine": "tests", "zahl": 2**53 + 1},
                digest="digest",
            )
            for one in changes
        )
        return DeltaChanges(WAREHOUSE, versions=versions).document()

    async def put_rows(self, transaction_id: str, changes: Iterable[Change], rows: DeltaRows | None = None) -> None:
        await (rows or self.rows).put(
            transaction_id, [TableChange(one.table_id, one.version, one.actions) for one in changes]
        )

    async def write(self, table_id: str, version: int, *actions: Action) -> TransactionId:
        """Put and commit one version of one table."""
        change = Change(table_id, version, actions)
        plan = self.plan([change])
        await self.put_rows(plan.id, [change])
        result = await self.store.commit(plan)
        assert isinstance(result, Committed) and not result.replayed, result
        return plan.id

    async def paths(self, table_id: str, version: int) -> list[str]:
        return sorted(file.path for file in await self.rows.files(table_id, version))

    async def current(self, table_id: str) -> int:
        row = await self.rows.table(table_id)
        assert row is not None
        return row.current_version

    async def version_of(self, table_id: str) -> tuple[int, int]:
        """The version by the rows and by the cell: they must agree."""
        value = await self.value(self.key(table_id))
        return await self.current(table_id), value["version"]
