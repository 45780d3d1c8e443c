"""Whether the rows of a Delta table say what its log says: the log is replayed, and compared version by version.

Comparing is pure (`compare_version`, `compare_state`); reading is in `verify`. What a checkpoint may leave out by
Delta's own rules (statistics as text, `dataChange`, application transactions that have expired) is no difference.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from lakepact.catalog.delta_logs import Log
from lakepact.delta.actions import Action, Add, DomainMetadata, FileKey, Metadata, Protocol, Remove, Txn
from lakepact.delta.codec import action_json
from lakepact.delta.errors import DeltaError
from lakepact.delta.log_reader import Base, Version
from lakepact.delta.ports import DeltaRows, TableContents, VersionActions
from lakepact.delta.protocol import is_managed
from lakepact.delta.state import Replay, TableState

MOST_DIFFERENCES: Final = 1_000
"""Told one by one; beyond that they are counted."""

_PAGE: Final = 50
_TXNS_EXPIRE: Final = "delta.setTransactionRetentionDuration"


@dataclass(slots=True)
class Parity:
    """What came of a comparison."""

    version: int
    """Of the table, by its rows."""

    log_version: int | None = None
    first_version: int | None = None
    """The oldest that was compared: the log may have forgotten what was before."""

    files: int = 0
    """Live in the newest version that both have."""

    count: int = 0
    differences: list[str] = field(default_factory=list)

    def differ(self, found: Iterable[str]) -> None:
        for one in found:
            self.count += 1
            if len(self.differences) < MOST_DIFFERENCES:
                self.differences.append(one)

    def to_json(self) -> dict[str, Any]:
        return {
            "version": self.version,
            "log-version": self.log_version,
            "first-version": self.first_version,
            "behind": max(self.version - self.log_version, 0) if self.log_version is not None else self.version + 1,
            "files": self.files,
            "equal": not self.count,
            "difference-count": self.count,
            "differences": self.differences,
        }


async def verify(rows: DeltaRows, log: Log, table_id: str, version: int) -> Parity:
    """Compare the table at this version with all that its log has.

    A log that is behind is not different while the table is ours: it is a mirror, and follows. Where the log cannot be
    read any further is a difference like others.
    """
    parity = Parity(version)
    contents = await rows.contents(table_id, version)
    ours = contents.protocol is not None and is_managed(contents.protocol)
    if not log.files and ours:
        return parity
    try:
        parity.log_version = log.newest
        replay = await _follow(rows, log, table_id, parity)
    except DeltaError as error:
        parity.differ([f"the log cannot be read: {error}"])
        return parity
    parity.differ(_ends(parity, ours))
    if 0 <= replay.version <= version:
        state = replay.state()
        parity.files = len(state.files)
        parity.differ(await _state_differences(rows, table_id, state, f"state at version {state.version}"))
    return parity


async def _follow(rows: DeltaRows, log: Log, table_id: str, parity: Parity) -> Replay:
    """Compare version by version, as far as both go. The state of the log there."""
    replay, pages = Replay(), _Pages(rows, table_id, parity.version)
    async for step in log.steps():
        if isinstance(step, Base):
            parity.first_version = step.state.version
            replay = Replay(step.state)
            if step.state.version < min(log.newest, parity.version):
                parity.differ(await _state_differences(rows, table_id, step.state, f"version {step.state.version}"))
            continue
        if parity.first_version is None:
            parity.first_version = step.number
        if step.number > parity.version:
            break
        replay.apply(step.number, step.actions)
        parity.differ(compare_version(step, await pages.get(step.number)))
    return replay


def _ends(parity: Parity, ours: bool) -> Iterator[str]:
    reached = parity.log_version
    if reached is None:
        return
    if reached > parity.version:
        first, what = parity.version + 1, "somebody else has written it" if ours else "import it again to go on"
        yield f"version {first}: the log has it (up to {reached}) and the table has not; {what}"
    elif reached < parity.version and not ours:
        yield f"version {reached + 1}: the table has it (up to {parity.version}) and the log has not"


class _Pages:
    """The versions of a table, got some at a time."""

    def __init__(self, rows: DeltaRows, table_id: str, newest: int) -> None:
        self._rows = rows
        self._table_id = table_id
        self._newest = newest
        self._held: dict[int, VersionActions] = {}
        self._until = -1

    async def get(self, version: int) -> VersionActions | None:
        if version > self._until:
            self._until = min(version - 1 + _PAGE, self._newest)
            found = await self._rows.since(self._table_id, version - 1, self._until)
            self._held = {one.row.version: one for one in found}
        return self._held.get(version)


async def _state_differences(rows: DeltaRows, table_id: str, state: TableState, where: str) -> list[str]:
    files = {one.key: one for one in await rows.files(table_id, state.version)}
    contents = await rows.contents(table_id, state.version)
    if contents.metadata is None:
        # The import began later than the log does now: an older state is not to be had.
        return [f"{where}: the table has no such version"]
    return list(compare_state(state, files, contents, where))


# --- pure ---


def compare_version(logged: Version, kept: VersionActions | None) -> Iterator[str]:
    """What one commit file says otherwise than the rows of the version."""
    where = f"version {logged.number}"
    if kept is None:
        yield f"{where}: the log has it and the table has not"
        return
    before, after = _by_name(logged.actions), _by_name(kept.actions)
    same = True
    for name in sorted(before.keys() | after.keys()):
        for found in _difference(f"{where}: {name}", before.get(name), after.get(name)):
            same = False
            yield found
    if same and kept.row.digest and kept.row.digest != logged.digest:
        yield f"{where}: the file in the log is not the one that was read (other bytes, the same actions)"


def compare_state(
    logged: TableState, files: Mapping[FileKey, Add], contents: TableContents, where: str
) -> Iterator[str]:
    """What the replayed log says of a version otherwise than the rows."""
    yield from _difference(f"{where}: metaData", _plain(logged.metadata), _plain(contents.metadata))
    yield from _difference(f"{where}: protocol", _plain(logged.protocol), _plain(contents.protocol))
    for key in sorted(logged.files.keys() | files.keys()):
        name = f"{where}: live file {key[0]}"
        yield from _difference(name, _file(logged.files.get(key), files.get(key)), _file(files.get(key)))
    for app_id in sorted(logged.transactions.keys() | contents.txns.keys()):
        txn = logged.transactions.get(app_id)
        if txn is None and _TXNS_EXPIRE in logged.metadata.configuration:
            continue
        yield from _difference(f"{where}: txn {app_id}", _plain(txn), _plain(contents.txns.get(app_id)))
    for domain in sorted(logged.domains.keys() | contents.domains.keys()):
        one, other = logged.domains.get(domain), contents.domains.get(domain)
        yield from _difference(f"{where}: domainMetadata {domain}", _plain(one), _plain(other))


def _difference(what: str, logged: Mapping[str, Any] | None, kept: Mapping[str, Any] | None) -> Iterator[str]:
    if logged == kept:
        return
    if kept is None:
        yield f"{what}: in the log and not in the table"
    elif logged is None:
        yield f"{what}: in the table and not in the log"
    else:
        for name in sorted(logged.keys() | kept.keys()):
            if logged.get(name) != kept.get(name):
                yield f"{what}: {name} is {_short(logged.get(name))} in the log, {_short(kept.get(name))} in the table"


def _by_name(actions: Iterable[Action]) -> dict[str, Mapping[str, Any]]:
    """Each action of a version under what tells it apart from the others."""
    named: dict[str, Mapping[str, Any]] = {}
    for action in actions:
        [(kind, body)] = action_json(action).items()
        match action:
            case Txn():
                name = f"{kind} {action.app_id}"
            case DomainMetadata():
                name = f"{kind} {action.domain}"
            case Metadata() | Protocol():
                name = kind
            case Add() | Remove():
                name = f"{kind} {''.join(action.key)}"
            case _:
                name = f"{kind} {action.path}"
        named[name] = body
    return named


def _plain(action: Action | None) -> Mapping[str, Any] | None:
    if action is None:
        return None
    [body] = action_json(action).values()
    found: Mapping[str, Any] = body
    return found


def _file(add: Add | None, other: Add | None = None) -> Mapping[str, Any] | None:
    """What counts of a live file. If the log's has no statistics (a checkpoint may leave them out), the other's do."""
    if add is None:
        return None
    stats = add.stats if add.stats is not None or other is None else other.stats
    return {
        "path": add.path,
        "size": add.size,
        "partitionValues": dict(add.partition_values),
        "modificationTime": add.modification_time,
        "stats": _loaded(stats),
    }


def _loaded(stats: str | None) -> Any:
    if stats is None:
        return None
    try:
        return orjson.loads(stats)
    except orjson.JSONDecodeError:
        return stats


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else text[:197] + "..."
