"""Whether a change that was planned on an older version may go on past those that came since. Pure, with a reason.

The rule is that of Delta's own conflict checker at its default level, *serializable*: the table must come to be as if
the change had been planned after the others. What was only added (a blind append) depends on nothing but the schema
and goes on past appends and deletes. What was read must still be so: no file that was read is gone, no file has come
that would have been read.

Stricter than Delta in one point: a change that brings metadata or a protocol of its own never goes on past another
version. It replaces them as a whole, and is cheap to plan again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from lakepact.delta.actions import Action, Add, DomainMetadata, FileKey, Metadata, Protocol, Remove, Txn
from lakepact.delta.errors import BadAction
from lakepact.delta.partitions import typed
from lakepact.delta.schema import Struct

PartitionValues: TypeAlias = Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class Reads:
    """What a change depends on."""

    everything: bool = False
    partitions: tuple[PartitionValues, ...] = ()
    """Any file whose partition has these values: `{"day": "2026-01-31"}` is every file of that day."""
    files: frozenset[FileKey] = frozenset()
    """These files, which must still be there, and nothing about files that come."""
    apps: frozenset[str] = frozenset()
    """Applications whose progress was looked up."""
    head: bool = False
    """All that describes the table beside its files: the progress of every application, and every domain. (Its protocol
    and its metadata count as read by every change.)"""

    @property
    def is_blind(self) -> bool:
        return not (self.everything or self.partitions or self.files)


class Reason(StrEnum):
    """Why a change cannot go on, in words for the wire."""

    PROTOCOL_CHANGED = "protocol-changed"
    METADATA_CHANGED = "metadata-changed"
    OWN_METADATA = "own-metadata"
    APP_ADVANCED = "app-advanced"
    DOMAIN_CHANGED = "domain-changed"
    FILE_ADDED_TWICE = "file-added-twice"
    FILE_REMOVED_TWICE = "file-removed-twice"
    READ_FILE_REMOVED = "read-file-removed"
    FILE_APPEARED = "file-appeared"


@dataclass(frozen=True, slots=True)
class Rebase:
    """The change may be committed as this version, unaltered."""

    version: int


@dataclass(frozen=True, slots=True)
class Conflict:
    """It may not: the table must be read again."""

    version: int
    """The version it conflicts with."""
    reason: Reason
    message: str


@dataclass(frozen=True, slots=True)
class Summary:
    """What a change, or a version, does to a table, as far as others can be touched by it."""

    added: Mapping[FileKey, PartitionValues]
    """Files with rows that were not in the table before: `dataChange` is true."""
    moved: frozenset[FileKey]
    """Files that hold rows of others, rearranged: `dataChange` is false."""
    removed: Mapping[FileKey, PartitionValues | None]
    """None: it is not known in which partition it was."""
    has_metadata: bool = False
    has_protocol: bool = False
    apps: frozenset[str] = frozenset()
    domains: frozenset[str] = frozenset()


def summarize(actions: Iterable[Action]) -> Summary:
    listed = list(actions)
    return Summary(
        added={one.key: one.partition_values for one in listed if isinstance(one, Add) and one.data_change},
        moved=frozenset(one.key for one in listed if isinstance(one, Add) and not one.data_change),
        removed={one.key: one.partition_values for one in listed if isinstance(one, Remove)},
        has_metadata=any(isinstance(one, Metadata) for one in listed),
        has_protocol=any(isinstance(one, Protocol) for one in listed),
        apps=frozenset(one.app_id for one in listed if isinstance(one, Txn)),
        domains=frozenset(one.domain for one in listed if isinstance(one, DomainMetadata)),
    )


def supposed_reads(actions: Iterable[Action]) -> Reads:
    """What a change must be supposed to have read, if nobody says.

    Nothing if it only adds, the files it rearranges if no row changes, and else the whole table.
    """
    listed = list(actions)
    removed = [one for one in listed if isinstance(one, Remove)]
    if not removed:
        return Reads()
    if all(not one.data_change for one in listed if isinstance(one, Add | Remove)):
        return Reads(files=frozenset(one.key for one in removed))
    return Reads(everything=True)


def check(
    change: Summary,
    reads: Reads,
    planned_on: int,
    since: Sequence[tuple[int, Summary]],
    schema: Struct | None = None,
) -> Rebase | Conflict:
    """May the change, planned on a version, be committed after those that came since (all of them, in order)?

    `schema` tells how partition values compare; without it every file is taken for one of the partitions that were
    read.
    """
    expected = planned_on + 1
    for version, winner in since:
        if version != expected:
            raise BadAction(f"version {expected} is missing between {planned_on} and {version}: nothing can be decided")
        expected += 1
        conflict = _with(change, reads, version, winner, schema)
        if conflict is not None:
            return conflict
    return Rebase(expected)


def _with(change: Summary, reads: Reads, version: int, winner: Summary, schema: Struct | None) -> Conflict | None:
    if winner.has_protocol:
        return Conflict(version, Reason.PROTOCOL_CHANGED, f"version {version} changed the protocol")
    if winner.has_metadata:
        return Conflict(version, Reason.METADATA_CHANGED, f"version {version} changed the schema or the properties")
    if change.has_protocol or change.has_metadata:
        what = "protocol" if change.has_protocol else "schema or properties"
        return Conflict(version, Reason.OWN_METADATA, f"it changes the {what}, and version {version} came before it")
    apps = sorted(winner.apps if reads.head else winner.apps & (change.apps | reads.apps))
    if apps:
        return Conflict(version, Reason.APP_ADVANCED, f"version {version} advanced the application {apps[0]!r}")
    domains = sorted(winner.domains if reads.head else winner.domains & change.domains)
    if domains:
        return Conflict(version, Reason.DOMAIN_CHANGED, f"version {version} changed the domain {domains[0]!r}")
    return _with_files(change, reads, version, winner, schema)


def _with_files(change: Summary, reads: Reads, version: int, winner: Summary, schema: Struct | None) -> Conflict | None:
    ours = change.added.keys() | change.moved
    # Whether it was added or removed meanwhile: a file of that name has had its life in this table.
    twice = sorted(ours & (winner.added.keys() | winner.moved | winner.removed.keys()))
    if twice:
        return Conflict(version, Reason.FILE_ADDED_TWICE, f"version {version} has the file {twice[0][0]!r} already")
    both = sorted(change.removed.keys() & winner.removed.keys())
    if both:
        return Conflict(
            version, Reason.FILE_REMOVED_TWICE, f"version {version} removed the file {both[0][0]!r} as well"
        )
    # A file that is rearranged is added with its old name: it is still read as it was planned.
    again = sorted(change.removed.keys() & (winner.added.keys() | winner.moved))
    if again:
        return Conflict(version, Reason.READ_FILE_REMOVED, f"version {version} replaced the file {again[0][0]!r}")
    for key, values in sorted(winner.removed.items(), key=lambda item: item[0]):
        if reads.everything or key in reads.files or _is_read(values, reads, schema):
            return Conflict(version, Reason.READ_FILE_REMOVED, f"version {version} removed {key[0]!r}, which was read")
    for key, values in sorted(winner.added.items(), key=lambda item: item[0]):
        if reads.everything or _is_read(values, reads, schema):
            return Conflict(
                version, Reason.FILE_APPEARED, f"version {version} added {key[0]!r}, which it would have had to read"
            )
    return None


def _is_read(values: PartitionValues | None, reads: Reads, schema: Struct | None) -> bool:
    """Whether a file with these partition values is of a partition that was read. In doubt it is."""
    if not reads.partitions:
        return False
    if values is None or schema is None:
        return True
    return any(
        all(name not in values or _same(name, values[name], wanted, schema) for name, wanted in read.items())
        for read in reads.partitions
    )


def _same(name: str, one: str | None, two: str | None, schema: Struct) -> bool:
    column = schema.find(name)
    if column is None:
        return True
    try:
        return typed(one, column.type) == typed(two, column.type)
    except BadAction:
        return True
