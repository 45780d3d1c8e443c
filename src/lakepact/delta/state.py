"""What a table is after some versions, and how the changes of one transaction become one version."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import assert_never

from lakepact.delta.actions import Action, Add, Cdc, DomainMetadata, FileKey, Metadata, Protocol, Remove, Txn
from lakepact.delta.errors import BadAction, BadLog


@dataclass(frozen=True, slots=True)
class TableState:
    """A table at one version. Files and tombstones never share a key."""

    version: int
    protocol: Protocol
    metadata: Metadata
    files: Mapping[FileKey, Add]
    tombstones: Mapping[FileKey, Remove]
    transactions: Mapping[str, Txn]
    domains: Mapping[str, DomainMetadata]
    """Those that are there: a removed one is not."""

    @property
    def size_bytes(self) -> int:
        return sum(add.size for add in self.files.values())

    def actions(self) -> Iterator[Action]:
        """Everything that makes this state, in the order of a commit file: what a checkpoint holds."""
        yield self.protocol
        yield self.metadata
        yield from (self.transactions[app_id] for app_id in sorted(self.transactions))
        yield from (self.domains[domain] for domain in sorted(self.domains))
        yield from (self.tombstones[key] for key in sorted(self.tombstones))
        yield from (self.files[key] for key in sorted(self.files))


class Replay:
    """Folds versions in their order, oldest first. The newest action for a key wins."""

    def __init__(self, base: TableState | None = None) -> None:
        self.version = -1 if base is None else base.version
        self._protocol = None if base is None else base.protocol
        self._metadata = None if base is None else base.metadata
        self._files: dict[FileKey, Add] = {} if base is None else dict(base.files)
        self._tombstones: dict[FileKey, Remove] = {} if base is None else dict(base.tombstones)
        self._transactions: dict[str, Txn] = {} if base is None else dict(base.transactions)
        self._domains: dict[str, DomainMetadata] = {} if base is None else dict(base.domains)

    @property
    def protocol(self) -> Protocol | None:
        return self._protocol

    @property
    def metadata(self) -> Metadata | None:
        return self._metadata

    @property
    def files(self) -> Mapping[FileKey, Add]:
        """The live files now. Not a copy: it changes with the next version."""
        return self._files

    def apply(self, version: int, actions: Iterable[Action]) -> None:
        if version != self.version + 1:
            raise BadLog(f"version {version} cannot follow version {self.version}: versions have no gaps")
        self.take(actions)
        self.version = version

    def take(self, actions: Iterable[Action]) -> None:
        """The actions of one version, whose order says nothing: no two of them are for one key."""
        for action in actions:
            match action:
                case Add():
                    self._tombstones.pop(action.key, None)
                    self._files[action.key] = action
                case Remove():
                    self._files.pop(action.key, None)
                    self._tombstones[action.key] = action
                case Metadata():
                    self._metadata = action
                case Protocol():
                    self._protocol = action
                case Txn():
                    self._transactions[action.app_id] = action
                case DomainMetadata():
                    if action.removed:
                        self._domains.pop(action.domain, None)
                    else:
                        self._domains[action.domain] = action
                case Cdc():
                    pass
                case _:
                    assert_never(action)

    def state(self) -> TableState:
        if self._protocol is None or self._metadata is None:
            missing = "protocol" if self._protocol is None else "metaData"
            raise BadLog(f"no version up to {self.version} has a {missing}: the beginning of the log is missing")
        return TableState(
            version=self.version,
            protocol=self._protocol,
            metadata=self._metadata,
            files=dict(self._files),
            tombstones=dict(self._tombstones),
            transactions=dict(self._transactions),
            domains=dict(self._domains),
        )


def replay(versions: Iterable[Sequence[Action]], base: TableState | None = None) -> TableState:
    """The state after these versions, which follow on `base` (or begin at 0)."""
    folded = Replay(base)
    for actions in versions:
        folded.apply(folded.version + 1, actions)
    return folded.state()


def fold(statements: Sequence[Sequence[Action]], live: Container[FileKey] = frozenset()) -> list[Action]:
    """The changes of one transaction, in their order, as one version with the same effect.

    A file that is added and removed again disappears, unless it was there before: `live` are the keys of the files
    the table has (or of those that the statements add and remove; without it every added file is taken for new). Of
    everything else the last word counts.
    """
    protocol: Protocol | None = None
    metadata: Metadata | None = None
    transactions: dict[str, Txn] = {}
    domains: dict[str, DomainMetadata] = {}
    files: dict[FileKey, Add | Remove] = {}
    was_there: set[FileKey] = set()
    for statement in statements:
        for action in statement:
            match action:
                case Protocol():
                    protocol = action
                case Metadata():
                    metadata = action
                case Txn():
                    transactions[action.app_id] = action
                case DomainMetadata():
                    domains[action.domain] = action
                case Add():
                    files[action.key] = action
                case Remove():
                    if action.key not in files or action.key in live:
                        # It was there before the transaction, whatever else happens to it now.
                        was_there.add(action.key)
                    if action.key in was_there:
                        files[action.key] = action
                    else:
                        del files[action.key]
                case Cdc():
                    raise BadAction("cdc: a managed table has no change data feed; leave the action out")
                case _:
                    assert_never(action)
    first = [one for one in (protocol, metadata) if one is not None]
    return [*first, *transactions.values(), *domains.values(), *files.values()]
