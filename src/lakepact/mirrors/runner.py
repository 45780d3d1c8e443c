"""Who follows what, and when: right after a commit, and again in the background for whatever that has left.

    ACTIVE ──failed──▶ RETRYING ──in step──▶ ACTIVE        1 s, 2 s, 4 s … 60 s between attempts
      │                    └──too often, if there is a limit──▶ DEAD
      └──other bytes are there──▶ CONFLICT
    CONFLICT, DEAD ──lakepact mirror retry──▶ ACTIVE

A table is followed by one at a time, by a lease in the database. The lease saves work and is no lock: two that both
write the log of a table write the same bytes. Whoever holds tables looks once more before it lets go, so a commit that
found them taken is not forgotten. Nothing here can undo, delay or fail a commit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import structlog

from lakepact.catalog.catalog import Catalog
from lakepact.catalog.watch import Mirrored
from lakepact.delta.ports import DeltaRows, MirrorRow, MirrorState
from lakepact.kernel.keys import segments_of
from lakepact.kernel.model import Transaction
from lakepact.kernel.ports import Clock
from lakepact.mirrors.cuts import Cuts
from lakepact.mirrors.duckdb_engine import DuckdbMirror
from lakepact.mirrors.engines import Engine
from lakepact.mirrors.log import Followed, LogMirror
from lakepact.runtime import BackgroundTask

_MOST_ROUNDS: Final = 1_000
"""Of one table set in a row. The rest waits for the next turn."""

_TICK_S: Final = 1.0

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class MirrorSettings:
    interval_s: float = 30.0
    """How often everything is looked at, whether or not there was a commit."""

    lease_s: float = 20.0
    """For how long tables are nobody else's, unless it is prolonged: so long they wait if their holder dies."""

    backoff_s: float = 1.0
    """The pause after a failure; it doubles."""

    max_backoff_s: float = 60.0
    max_attempts: int = 0
    """Failures in a row after which a mirror is dead until `lakepact mirror retry`; 0: it is tried without end."""

    batch: int = 100
    """Tables that are claimed at once."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one engine's copy of a table came along."""

    engine: str
    success: bool
    error: str | None
    version: int
    """The version that the copy has."""


@dataclass(slots=True)
class _Wanted:
    """What is to be looked at by one engine, gathered while it is busy."""

    tables: set[str] = field(default_factory=set)
    others: bool = False
    """Whether tables that have no row of their own have changed: those of Iceberg."""

    busy: bool = False


class _Place:
    """The mirrors of one warehouse."""

    def __init__(self, name: str, catalog: Catalog, rows: DeltaRows) -> None:
        self.name = name
        self.log = LogMirror(catalog.parts.warehouse, catalog.parts.blobs, rows)
        self.cuts = Cuts(name, catalog.parts.blobs, rows)
        self.duckdb = DuckdbMirror(catalog, rows, iceberg=Engine.DUCKDB in catalog.parts.settings.mirrors)
        self.wanted = {engine: _Wanted() for engine in Engine}
        self.turns = {engine: asyncio.Lock() for engine in Engine}


class Mirrors:
    def __init__(
        self,
        catalogs: Mapping[str, Catalog],
        rows: DeltaRows,
        clock: Clock,
        *,
        owner: str,
        settings: MirrorSettings | None = None,
        on_lag: Callable[[str, float], None] = lambda engine, lag_ms: None,
        on_failed: Callable[[str, str], None] = lambda engine, kind: None,
    ) -> None:
        """`owner` names this process and must be no other's name. `on_lag` hears of every version that has become
        readable and how many ms after its commit; `on_failed` of `error`, `conflict` and `dead`, by engine."""
        self._rows = rows
        self._clock = clock
        self._owner = owner
        self._settings = settings or MirrorSettings()
        self._on_lag = on_lag
        self._on_failed = on_failed
        self._places = {name: _Place(name, catalog, rows) for name, catalog in catalogs.items()}
        self._retry_at_ms: int | None = None
        self._task = BackgroundTask(self._run)

    # --- right after a commit ---

    async def after_commit(self, transaction: Transaction) -> None:
        """Bring the mirrors of the tables that this commit has changed up to date. Never raises.

        To be called in the background, after the answer. If this process is at it already, it only says what has
        changed: commits that come faster than mirrors are one step for them.
        """
        for warehouse, (tables, others) in _changed(transaction).items():
            place = self._places.get(warehouse)
            if place is not None:
                await asyncio.gather(*(self._attempt(place, engine, tables, others) for engine in Engine))

    async def shown(self, warehouse: str) -> Sequence[Mirrored]:
        """What the DuckDB file of a warehouse leads to."""
        return await self._places[warehouse].duckdb.shows()

    async def mirror(self, table_ids: Iterable[str]) -> dict[str, list[Outcome]]:
        """Bring the mirrors of these tables up to date now, and say how each came along. Failures are in the answer."""
        wanted = list(table_ids)
        for place in self._places.values():
            await asyncio.gather(*(self._guarded(place, engine, wanted) for engine in Engine))
        return {
            table_id: [
                Outcome(
                    row.engine,
                    row.mirrored_version >= row.current_version,
                    row.last_error,
                    row.mirrored_version,
                )
                for row in await self._rows.mirror_status(table_id=table_id)
                if row.state is not MirrorState.OFF
            ]
            for table_id in wanted
        }

    async def _attempt(self, place: _Place, engine: Engine, tables: set[str], others: bool) -> None:
        wanted = place.wanted[engine]
        wanted.tables |= tables
        wanted.others |= others and engine is Engine.DUCKDB and place.duckdb.wanted
        if wanted.busy:
            return
        wanted.busy = True
        try:
            while wanted.tables or wanted.others:
                taken, wanted.tables = wanted.tables, set()
                also, wanted.others = wanted.others, False
                await self._guarded(place, engine, taken, others=also)
        finally:
            wanted.busy = False

    # --- in the background ---

    async def turn(self) -> bool:
        """Look at everything that any mirror has left: whether there is more. The shape of an upkeep job."""
        more = False
        for place in self._places.values():
            place.duckdb.look_again()
            found = await asyncio.gather(*(self._guarded(place, engine, None, others=True) for engine in Engine))
            more = more or any(found)
            try:
                await place.cuts.welcome_back()
            except Exception as error:
                self._cuts_failed(place, error)
        return more

    def start(self) -> None:
        """Take turns until `stop`: every interval, and when a failed mirror may be tried again."""
        self._task.start()

    async def stop(self) -> None:
        """End, in the middle of a file if need be: whoever comes next goes on there, once the leases have run out."""
        await self._task.stop()

    async def _run(self) -> None:
        next_turn_ms = 0
        while True:
            now_ms = self._clock.now_ms()
            due = self._retry_at_ms is not None and self._retry_at_ms <= now_ms
            if now_ms >= next_turn_ms or due:
                self._retry_at_ms = None
                try:
                    more = await self.turn()
                except Exception as error:
                    more = False
                    _log.warning("mirrors could not look around; the next turn tries again", error=repr(error))
                next_turn_ms = self._clock.now_ms() + (0 if more else int(self._settings.interval_s * 1000))
            await self._clock.sleep(_TICK_S)

    # --- rounds ---

    async def _guarded(
        self, place: _Place, engine: Engine, tables: Iterable[str] | None, *, others: bool = False
    ) -> bool:
        """Rounds of one engine until there is nothing left to claim: whether that was cut short. Never raises."""
        wanted = None if tables is None else sorted(tables)
        try:
            async with place.turns[engine]:
                for number in range(_MOST_ROUNDS):
                    claimed = await self._claim(place, engine, wanted)
                    if engine is Engine.DUCKDB and (claimed or others):
                        await self._duckdb_round(place, claimed)
                    elif engine is Engine.DELTA_LOG and (claimed or not number):
                        await self._log_round(place, claimed)
                    others = False
                    if not claimed:
                        return False
                return True
        except Exception as error:
            self._on_failed(engine, "error")
            _log.warning("a mirror failed; it is tried again", engine=engine, warehouse=place.name, error=repr(error))
            self._again_at(self._clock.now_ms() + int(self._settings.backoff_s * 1000))
            return False

    async def _claim(self, place: _Place, engine: Engine, tables: Sequence[str] | None) -> Sequence[MirrorRow]:
        if tables is not None and not tables:
            return ()
        settings = self._settings
        return await self._rows.claim(
            engine, self._owner, settings.lease_s, settings.batch, tables=tables, warehouse=place.name
        )

    async def _log_round(self, place: _Place, claimed: Sequence[MirrorRow]) -> None:
        hold = self._holder(Engine.DELTA_LOG)
        followed = await place.log.follow(claimed, hold)
        now_ms = self._clock.now_ms()
        for one in followed:
            for committed_ms in one.times:
                self._on_lag(Engine.DELTA_LOG, max(now_ms - committed_ms, 0))
        published = await self._publish(place, {one.table.table_id: one.reached for one in followed})
        if not claimed:
            return
        # Before it is noted that the versions are there: so a crash in between leaves no checkpoint out.
        await place.log.checkpoint(followed, hold)
        await self._settle_log(claimed, followed)
        if not published:
            # Others may have waited for what was noted just now, while this waited for what they have noted.
            await self._publish(place, {})

    async def _publish(self, place: _Place, reached: Mapping[str, int]) -> bool:
        """Publish the cuts that are complete: whether none is left."""
        try:
            return await place.cuts.publish(reached)
        except Exception as error:
            self._cuts_failed(place, error)
            return True

    def _cuts_failed(self, place: _Place, error: Exception) -> None:
        self._on_failed(Engine.DELTA_LOG, "error")
        _log.error("the cuts could not be published", warehouse=place.name, error=repr(error))
        self._again_at(self._clock.now_ms() + int(self._settings.max_backoff_s * 1000))

    async def _settle_log(self, claimed: Sequence[MirrorRow], followed: Sequence[Followed]) -> None:
        before = {row.table_id: row for row in claimed}
        # Whoever has got on is noted as that; what stopped it is met again, and told, in the next round.
        moved = {one.table.table_id: one.reached for one in followed if one.reached > one.began_at or not one.stopped}
        if moved:
            await self._rows.mirrored(Engine.DELTA_LOG, self._owner, moved)
        for one in followed:
            if one.reached > one.began_at:
                _log.debug("a log has followed", location=one.table.location, version=one.reached, was=one.began_at)
            if one.table.table_id in moved:
                continue
            if one.conflict is not None:
                self._on_failed(Engine.DELTA_LOG, "conflict")
                _log.error("a log was written by somebody else", location=one.table.location, conflict=one.conflict)
                await self._rows.mirror_conflict(Engine.DELTA_LOG, self._owner, one.table.table_id, one.conflict)
            else:
                await self._failed(Engine.DELTA_LOG, before[one.table.table_id], str(one.error) or repr(one.error))

    async def _duckdb_round(self, place: _Place, claimed: Sequence[MirrorRow]) -> None:
        if not claimed and not place.duckdb.wanted:
            return
        place.duckdb.follows(row.table_id for row in claimed)
        try:
            made = await place.duckdb.follow()
        except Exception as error:
            for row in claimed:
                await self._failed(Engine.DUCKDB, row, str(error) or repr(error))
            raise
        for name, reason in made.left_out.items():
            self._on_failed(Engine.DUCKDB, "error")
            _log.warning("a table is not in the DuckDB file", warehouse=place.name, table=name, reason=reason)
        now_ms = self._clock.now_ms()
        shown = {row.table_id: made.versions[row.table_id] for row in claimed if row.table_id in made.versions}
        if shown:
            await self._rows.mirrored(Engine.DUCKDB, self._owner, shown)
        for table_id in shown:
            self._on_lag(Engine.DUCKDB, max(now_ms - made.times[table_id], 0))
        for row in claimed:
            if row.table_id not in shown:
                reason = made.errors.get(row.table_id, "the catalog has no such table")
                await self._failed(Engine.DUCKDB, row, reason)

    async def _failed(self, engine: Engine, row: MirrorRow, error: str) -> None:
        settings = self._settings
        dead = 0 < settings.max_attempts <= row.attempts + 1
        pause_s = min(settings.backoff_s * 2.0 ** min(row.attempts, 30), settings.max_backoff_s)
        retry_at_ms = self._clock.now_ms() + int(pause_s * 1000)
        self._on_failed(engine, "dead" if dead else "error")
        _log.warning(
            "a table could not be mirrored",
            engine=engine,
            table_id=row.table_id,
            attempts=row.attempts + 1,
            error=error,
        )
        await self._rows.mirror_failed(
            engine, self._owner, row.table_id, error, retry_at_ms=None if dead else retry_at_ms
        )
        if not dead:
            self._again_at(retry_at_ms)

    def _again_at(self, at_ms: int) -> None:
        self._retry_at_ms = at_ms if self._retry_at_ms is None else min(self._retry_at_ms, at_ms)

    def _holder(self, engine: Engine) -> Callable[[], Awaitable[None]]:
        """Prolongs the leases when a third of their time has gone."""
        every_s, last_s = self._settings.lease_s / 3, self._clock.monotonic_s()

        async def hold() -> None:
            nonlocal last_s
            if self._clock.monotonic_s() - last_s > every_s:
                last_s = self._clock.monotonic_s()
                await self._rows.hold(engine, self._owner, self._settings.lease_s)

        return hold


def _changed(transaction: Transaction) -> dict[str, tuple[set[str], bool]]:
    """By warehouse: the Delta tables that a commit has changed, and whether it has changed tables of Iceberg."""
    changed: dict[str, tuple[set[str], bool]] = {}
    for write in transaction.writes:
        warehouse, *rest = segments_of(write.key)
        tables, others = changed.get(warehouse, (set(), False))
        if rest[:1] == ["delta"]:
            changed[warehouse] = (tables | {rest[-1]}, others)
        elif rest[:1] == ["tables"]:
            changed[warehouse] = (tables, True)
    return changed
