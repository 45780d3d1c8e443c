"""Upkeep: finish what is decided, end what has expired, and in time forget.

Records are found by listing all of them, oldest first: a take-over or a late creation can revive an old one, and what
nobody has finished must not be forgotten however old it is. Collection keeps the list short. A process remembers
which versions of records need no more work, so a second pass reads only what has changed. Nothing here needs to be
done by one runner only; it converges whoever does it and how often.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from lakepact.errors import Damaged, StoreUnavailable
from lakepact.kernel import decide
from lakepact.kernel.access import Access, DeadlinePassed, RecordVersion, Remembered
from lakepact.kernel.decide import Upkeep
from lakepact.kernel.documents import id_of_record_name, name_of_record, name_prefix_of_staged
from lakepact.kernel.identity import TransactionId, timestamp_ms
from lakepact.kernel.model import Collection, Recovery, State, TransactionPage
from lakepact.kernel.ports import DocumentEntry
from lakepact.kernel.resolve import Resolver

_RECORDS = "transactions/"
_BATCH = 100
_DAY_MS = 86_400_000


@dataclass(slots=True)
class Rounds:
    """Where the passes of one process stand, and which record versions they need not read again."""

    quiet: Remembered[str, str]
    recover_after: str | None = None
    collect_after: str | None = None


class Recoverer:
    def __init__(self, access: Access, rounds: Rounds) -> None:
        self._access = access
        self._rounds = rounds
        self._resolver = Resolver(access)

    # --- recover ---

    async def recover(self, limit: int) -> Recovery:
        """One pass, or as much of it as the limit and the deadline allow; the next call goes on where it stopped."""
        total = Recovery()
        examined = 0
        try:
            while examined < limit:
                entries = await self._access.list(_RECORDS, self._rounds.recover_after, self._access.settings.max_page)
                if not entries:
                    self._rounds.recover_after = None
                    return total
                changed = [entry for entry in entries if not self._is_quiet(entry)][: limit - examined]
                steps = await self._access.tasks.all([self._recover_one(entry) for entry in changed])
                total = _sum([total, *steps])
                examined += len(changed)
                self._rounds.recover_after = changed[-1].name if examined == limit else entries[-1].name
        except DeadlinePassed:
            pass
        return replace(total, more=True)

    async def _recover_one(self, entry: DocumentEntry) -> Recovery:
        transaction_id = id_of_record_name(entry.name)
        if transaction_id is None:
            return Recovery()
        try:
            version = await self._access.record(transaction_id)
            return await self._settle(entry, version) if version is not None else Recovery()
        except DeadlinePassed:
            raise
        except (StoreUnavailable, Damaged):
            # One record that cannot be read must not keep the others from being finished.
            return Recovery(left=1)

    async def _settle(self, entry: DocumentEntry, version: RecordVersion) -> Recovery:
        match decide.upkeep(version.document, self._access.now_ms()):
            case Upkeep.NOTHING:
                if version.document.finalized and version.token is not None:
                    self._rounds.quiet.put(entry.name, version.token)
                return Recovery()
            case Upkeep.FINISH:
                finished = await self._resolver.finish(version)
                return Recovery(finished=1) if finished else Recovery(left=1)
            case Upkeep.GIVE_UP:
                given_up = await self._resolver.give_up(version)
                if given_up is None:
                    return Recovery(left=1)
                released = await self._resolver.release(given_up.document)
                return Recovery(given_up=1, left=0 if released else 1)
            case Upkeep.RELEASE:
                released = await self._resolver.release(version.document)
                return Recovery(left=0 if released else 1)
            case Upkeep.EXPIRE:
                aborted = await self._access.write_record(
                    version, decide.aborted(version.document, self._access.now_ms())
                )
                if aborted is None:
                    return Recovery(left=1)
                finished = await self._resolver.finish(aborted)
                return Recovery(expired=1, left=0 if finished else 1)

    def _is_quiet(self, entry: DocumentEntry) -> bool:
        return entry.token is not None and self._rounds.quiet.get(entry.name) == entry.token

    # --- collect ---

    async def collect(self, limit: int) -> Collection:
        """Trim what is finished and old; delete stubs that no request can meet any more.

        Age alone never decides: only a finalized record is trimmed, and only a trimmed one is deleted.
        """
        total = Collection()
        examined = 0
        try:
            while examined < limit:
                entries = await self._access.list(_RECORDS, self._rounds.collect_after, min(_BATCH, limit))
                if not entries or self._too_young(entries[0]):
                    self._rounds.collect_after = None
                    return total
                steps = await self._access.tasks.all([self._collect_one(entry) for entry in entries])
                total = Collection(
                    total.trimmed + sum(step.trimmed for step in steps),
                    total.deleted + sum(step.deleted for step in steps),
                )
                examined += len(entries)
                self._rounds.collect_after = entries[-1].name
        except DeadlinePassed:
            pass
        return replace(total, more=True)

    def _too_young(self, entry: DocumentEntry) -> bool:
        """Records are listed by the date of their ids, so after the first that is too young there is nothing to do."""
        transaction_id = id_of_record_name(entry.name)
        oldest_kept_ms = self._access.confirmed_ms() - self._access.settings.trim_after_s * 1000
        return transaction_id is not None and timestamp_ms(transaction_id) >= oldest_kept_ms

    async def _collect_one(self, entry: DocumentEntry) -> Collection:
        transaction_id = id_of_record_name(entry.name)
        if transaction_id is None or self._too_young(entry):
            return Collection()
        try:
            version = await self._access.record(transaction_id)
            if version is None or not version.document.finalized:
                return Collection()
            return await (self._delete(version) if version.document.trimmed else self._trim(version))
        except DeadlinePassed:
            raise
        except (StoreUnavailable, Damaged):
            return Collection()

    async def _trim(self, version: RecordVersion) -> Collection:
        record = version.document
        if (record.decided_ms or 0) > self._access.confirmed_ms() - self._access.settings.trim_after_s * 1000:
            return Collection()
        if record.staged:
            await self._delete_staged(version)
        swapped = await self._access.swap_record_once(version, decide.trimmed(record))
        return Collection(trimmed=1 if swapped is not None else 0)

    async def _delete(self, version: RecordVersion) -> Collection:
        record, settings = version.document, self._access.settings
        kept_ms = settings.horizon_days * _DAY_MS + int(settings.slack_s * 1000)
        if max(timestamp_ms(record.id), record.decided_ms or 0) >= self._access.confirmed_ms() - kept_ms:
            return Collection()
        # A lock that came late, after the record was finalized, must not outlive it. By now none can come any more.
        if not await self._resolver.release(record):
            return Collection()
        if record.staged:
            await self._delete_staged(version)
        name = name_of_record(record.id)
        await self._access.delete(name)
        self._rounds.quiet.forget(name)
        return Collection(deleted=1)

    async def _delete_staged(self, version: RecordVersion) -> None:
        """The staging log of a finished transaction: nobody folds it again."""
        prefix = name_prefix_of_staged(version.document.id)
        while entries := await self._access.list(prefix, None, _BATCH):
            await self._access.tasks.all([self._access.delete(entry.name) for entry in entries])

    # --- listing ---

    async def transactions(
        self, states: Iterable[State], created_before_ms: int | None, after: TransactionId | None, limit: int
    ) -> TransactionPage:
        wanted = frozenset(states) or frozenset(State)
        ids, more = await self._ids(after, limit)
        versions = await self._access.tasks.all([self._access.record(transaction_id) for transaction_id in ids])
        found = tuple(
            version.document.public()
            for version in versions
            if version is not None
            and version.document.state in wanted
            and (created_before_ms is None or version.document.created_ms < created_before_ms)
        )
        return TransactionPage(found, ids[-1] if more else None)

    async def _ids(self, after: TransactionId | None, limit: int) -> tuple[list[TransactionId], bool]:
        """The next ones, and whether there may be more. None only at the end: strays are stepped over."""
        behind = None if after is None else name_of_record(after)
        while True:
            entries = await self._access.list(_RECORDS, behind, limit)
            ids = [found for entry in entries if (found := id_of_record_name(entry.name)) is not None]
            if ids or len(entries) < limit:
                return ids, len(entries) == limit
            behind = entries[-1].name


def _sum(parts: Sequence[Recovery]) -> Recovery:
    return Recovery(
        finished=sum(part.finished for part in parts),
        given_up=sum(part.given_up for part in parts),
        expired=sum(part.expired for part in parts),
        left=sum(part.left for part in parts),
    )
