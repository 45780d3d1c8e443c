"""Upkeep: finish what is decided, end what has expired, and in time forget.

Records are found by listing all of them, oldest first: a take-over or a late creation can revive an old one, and what
nobody has finished must not be forgotten however old it is. Collection keeps the list short. A process remembers
which versions of records need no more work, so a second pass reads only what has changed. Nothing here needs to be
done by one runner only; it converges whoever does it and how often.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lakepact.errors import Damaged, StoreUnavailable
from lakepact.kernel import decide
from lakepact.kernel.access import Access, RecordVersion, Remembered
from lakepact.kernel.decide import Upkeep
from lakepact.kernel.documents import id_of_record_name, name_prefix_of_staged
from lakepact.kernel.identity import timestamp_ms
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
        total = Recovery()
        examined = 0
        after = self._rounds.recover_after
        while examined < limit:
            entries = await self._access.list(_RECORDS, after, min(_BATCH, limit))
            if not entries:
                self._rounds.recover_after = None
                return total
            changed = [entry for entry in entries if not self._is_quiet(entry)]
            steps = await self._access.tasks.all([self._recover_one(entry) for entry in changed])
            total = _sum([total, *steps])
            examined += max(1, len(changed))
            after = entries[-1].name
        self._rounds.recover_after = after
        return Recovery(total.finished, total.given_up, total.expired, total.left, more=True)

    async def _recover_one(self, entry: DocumentEntry) -> Recovery:
        try:
            version = await self._access.record(id_of_record_name(entry.name))
            return await self._settle(entry, version) if version is not None else Recovery()
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
        trimmed = deleted = examined = 0
        after = self._rounds.collect_after
        while examined < limit:
            entries = await self._access.list(_RECORDS, after, min(_BATCH, limit))
            entries = [entry for entry in entries if self._old_enough_to_trim(entry)]
            if not entries:
                self._rounds.collect_after = None
                return Collection(trimmed, deleted)
            steps = await self._access.tasks.all([self._collect_one(entry) for entry in entries])
            trimmed += sum(step.trimmed for step in steps)
            deleted += sum(step.deleted for step in steps)
            examined += len(entries)
            after = entries[-1].name
        self._rounds.collect_after = after
        return Collection(trimmed, deleted, more=True)

    def _old_enough_to_trim(self, entry: DocumentEntry) -> bool:
        made_ms = timestamp_ms(id_of_record_name(entry.name))
        return made_ms < self._access.now_ms() - self._access.settings.trim_after_s * 1000

    async def _collect_one(self, entry: DocumentEntry) -> Collection:
        settings, now_ms = self._access.settings, self._access.now_ms()
        try:
            version = await self._access.record(id_of_record_name(entry.name))
            if version is None or not version.document.finalized:
                return Collection()
            record = version.document
            decided_ms = record.decided_ms or now_ms
            if not record.trimmed:
                if decided_ms > now_ms - settings.trim_after_s * 1000:
                    return Collection()
                if record.staged:
                    await self._delete_staged(version)
                swapped = await self._access.swap_record_once(version, decide.trimmed(record))
                return Collection(trimmed=1 if swapped is not None else 0)
            horizon_ms = settings.horizon_days * _DAY_MS + int(settings.slack_s * 1000)
            if max(timestamp_ms(record.id), decided_ms) < now_ms - horizon_ms:
                # A lock that came late, after the record was finalized, must not outlive it. By now none can come.
                if not await self._resolver.release(record):
                    return Collection()
                if record.staged:
                    await self._delete_staged(version)
                await self._access.delete(entry.name)
                self._rounds.quiet.forget(entry.name)
                return Collection(deleted=1)
            return Collection()
        except (StoreUnavailable, Damaged):
            return Collection()

    async def _delete_staged(self, version: RecordVersion) -> None:
        """The staging log of a finished transaction: nobody folds it again."""
        prefix = name_prefix_of_staged(version.document.id)
        while entries := await self._access.list(prefix, None, _BATCH):
            await self._access.tasks.all([self._access.delete(entry.name) for entry in entries])

    # --- listing ---

    async def transactions(
        self, states: Iterable[State], created_before_ms: int | None, after: str | None, limit: int
    ) -> TransactionPage:
        wanted = frozenset(states) or frozenset(State)
        entries = await self._access.list(_RECORDS, after, limit)
        versions = await self._access.tasks.all(
            [self._access.record(id_of_record_name(entry.name)) for entry in entries]
        )
        found = tuple(
            version.document.public()
            for version in versions
            if version is not None
            and version.document.state in wanted
            and (created_before_ms is None or version.document.created_ms < created_before_ms)
        )
        return TransactionPage(found, entries[-1].name if len(entries) == limit else None)


def _sum(parts: Sequence[Recovery]) -> Recovery:
    return Recovery(
        finished=sum(part.finished for part in parts),
        given_up=sum(part.given_up for part in parts),
        expired=sum(part.expired for part in parts),
        left=sum(part.left for part in parts),
    )
