"""Reading a log that is there: which files matter, the state to begin with, and every version after it.

Nothing is opened here: the caller lists `_delta_log` and gets files by name. A log whose first commits are gone
begins with its oldest checkpoint from which every later commit is there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from lakepact.delta import codec
from lakepact.delta.actions import Action, Add, CommitInfo, Metadata, Protocol
from lakepact.delta.checkpoint import read_checkpoint
from lakepact.delta.errors import BadLog, UnsupportedFeature
from lakepact.delta.protocol import ENABLE_IN_COMMIT_TIMESTAMPS, import_problems
from lakepact.delta.state import Replay, TableState

_COMMIT: Final = re.compile(r"(\d{20})\.json")
_SINGLE: Final = re.compile(r"(\d{20})\.checkpoint\.parquet")
_PART: Final = re.compile(r"(\d{20})\.checkpoint\.(\d{10})\.(\d{10})\.parquet")
_V2: Final = re.compile(r"(\d{20})\.checkpoint\.[0-9a-fA-F-]{36}\.(?:json|parquet)")

Fetch: TypeAlias = Callable[[str], bytes]
"""Gets a file by its name below `_delta_log`, such as `00000000000000000000.json` or `_sidecars/x.parquet`."""


@dataclass(frozen=True, slots=True)
class LogFile:
    """An entry of the listing of `_delta_log`."""

    name: str
    modified_ms: int


@dataclass(frozen=True, slots=True)
class Listing:
    """What a listing says. Files that are not of the log are not in it."""

    commits: Mapping[int, LogFile]
    checkpoints: Mapping[int, tuple[str, ...]]
    """Complete ones: all their parts, in order."""

    @property
    def newest(self) -> int:
        found = [*self.commits, *self.checkpoints]
        if not found:
            raise BadLog("there is no commit and no checkpoint: this is not a Delta log")
        return max(found)

    def start(self, since: int | None = None) -> int | None:
        """The checkpoint with which reading begins so that all that is there is read; None: with the commit of
        version 0.

        `since`: begin at the newest checkpoint up to that version, and leave out what was before.
        """
        newest = self.newest
        oldest_commit = newest + 1
        while oldest_commit - 1 in self.commits:
            oldest_commit -= 1
        whole = [version for version in self.checkpoints if version >= oldest_commit - 1]
        if since is not None:
            if since > newest:
                raise BadLog(f"version {since} is not there: the newest is {newest}")
            usable = [version for version in whole if version <= since]
            if usable:
                return max(usable)
        if oldest_commit == 0:
            return None
        if not whole or (since is not None and min(whole) > since):
            raise BadLog(
                f"version {oldest_commit - 1 if since is None else since} cannot be made: its commit is missing, and "
                f"there is no complete checkpoint to begin with"
            )
        return min(whole)


@dataclass(frozen=True, slots=True)
class Base:
    """The state a log begins with, from a checkpoint."""

    state: TableState
    timestamp_ms: int
    dropped: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Version:
    number: int
    timestamp_ms: int
    """In-commit, where the table has it, else the time of the file: grows from version to version."""
    info: CommitInfo | None
    actions: tuple[Action, ...]
    dropped: tuple[str, ...]
    digest: str


def listing(files: Iterable[LogFile]) -> Listing:
    commits: dict[int, LogFile] = {}
    checkpoints: dict[int, tuple[str, ...]] = {}
    parts: dict[tuple[int, int], dict[int, str]] = {}
    listed = sorted(files, key=lambda one: one.name)
    for file in listed:
        if found := _COMMIT.fullmatch(file.name):
            commits[int(found[1])] = file
        elif found := _PART.fullmatch(file.name):
            parts.setdefault((int(found[1]), int(found[3])), {})[int(found[2])] = file.name
        elif found := _V2.fullmatch(file.name):
            checkpoints.setdefault(int(found[1]), (file.name,))
    for (version, total), names in parts.items():
        if set(names) == set(range(1, total + 1)):
            checkpoints[version] = tuple(names[number] for number in sorted(names))
    for file in listed:
        if found := _SINGLE.fullmatch(file.name):
            checkpoints[int(found[1])] = (file.name,)
    return Listing(commits, checkpoints)


def read_log(files: Iterable[LogFile], fetch: Fetch, since: int | None = None) -> Iterator[Base | Version]:
    """The log from its beginning (a `Base` if that is a checkpoint), version by version, oldest first.

    `since`: only what is needed to know the table from that version on. Refuses what cannot be carried, by name, at
    the version where it shows.
    """
    found = listing(files)
    start = found.start(since)
    replay = Replay()
    clock = _Clock()
    if start is not None:
        parts = [(name, fetch(name)) for name in found.checkpoints[start]]
        read = read_checkpoint(start, parts, lambda name: fetch(f"_sidecars/{name}"))
        _check(read.state.protocol, read.state.metadata, read.state.files.values(), f"checkpoint {start}")
        replay = Replay(read.state)
        yield Base(read.state, clock.time_of_base(start, found, fetch), read.dropped)
    for number in range(replay.version + 1, found.newest + 1):
        file = found.commits.get(number)
        if file is None:
            raise BadLog(f"the commit of version {number} is missing, and version {found.newest} is there")
        content = fetch(file.name)
        parsed = codec.parse_commit(content, file.name)
        replay.apply(number, parsed.actions)
        if replay.protocol is None or replay.metadata is None:
            raise BadLog(f"{file.name}: version {number} has no protocol and metaData, and none came before")
        added = (action for action in parsed.actions if isinstance(action, Add))
        _check(replay.protocol, replay.metadata, added, file.name)
        yield Version(
            number=number,
            timestamp_ms=clock.time_of(file, parsed, replay.metadata),
            info=parsed.info,
            actions=parsed.actions,
            dropped=parsed.dropped,
            digest=codec.digest(content),
        )


def read_state(files: Iterable[LogFile], fetch: Fetch, version: int | None = None) -> TableState:
    """The table at a version (the newest if nothing is said), from as few files as will do."""
    files = list(files)
    wanted = listing(files).newest if version is None else version
    replay = Replay()
    for step in read_log(files, fetch, wanted):
        if isinstance(step, Base):
            replay = Replay(step.state)
        elif step.number <= wanted:
            replay.apply(step.number, step.actions)
        if replay.version == wanted:
            break
    return replay.state()


class _Clock:
    """Times of versions, which grow. Before in-commit timestamps they are those of the files, as Delta has it."""

    def __init__(self) -> None:
        self._last: int | None = None

    def time_of(self, file: LogFile, parsed: codec.ParsedCommit, metadata: Metadata) -> int:
        in_commit = metadata.configuration.get(ENABLE_IN_COMMIT_TIMESTAMPS, "").lower() == "true"
        if in_commit and parsed.in_commit_timestamp_ms is not None:
            self._last = parsed.in_commit_timestamp_ms
        else:
            self._last = file.modified_ms if self._last is None else max(file.modified_ms, self._last + 1)
        return self._last

    def time_of_base(self, version: int, found: Listing, fetch: Fetch) -> int:
        file = found.commits.get(version)
        if file is None:
            following = found.commits.get(version + 1)
            self._last = 0 if following is None else following.modified_ms - 1
            return self._last
        parsed = codec.parse_commit(fetch(file.name), file.name)
        self._last = file.modified_ms if parsed.in_commit_timestamp_ms is None else parsed.in_commit_timestamp_ms
        return self._last


def _check(protocol: Protocol, metadata: Metadata, added: Iterable[Add], where: str) -> None:
    problems = [f"{where}: {problem}" for problem in import_problems(protocol, metadata)]
    for add in added:
        if add.deletion_vector is not None:
            problems.append(
                f"{where}: the file {add.path!r} has a deletion vector, which cannot be carried; "
                f"REORG TABLE … APPLY (PURGE) rewrites such files, then import from that version on"
            )
            break
        if codec.outside_of_table(add.path) is not None:
            problems.append(
                f"{where}: the file {add.path[:200]!r} lies outside of the table, as in a shallow clone; "
                f"that cannot be carried"
            )
            break
    if problems:
        raise UnsupportedFeature(problems)
