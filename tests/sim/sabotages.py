"""Test the tester: each sabotage breaks one rule of the kernel's source, and the simulator must notice.

A sabotage is a few edits of the source text. Each old text must occur exactly once in its file, so a sabotage that
no longer fits the kernel is an error, never a silent pass. `promises` says which promises may catch it: whichever
check meets the damage first speaks, so a few sabotages have more than one.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import lakepact

SOURCE: Final = Path(lakepact.__file__).parent


@dataclass(frozen=True, slots=True)
class Edit:
    module: str
    """The file in `package`."""

    old: str
    new: str
    package: str = "kernel"


@dataclass(frozen=True, slots=True)
class Sabotage:
    name: str
    promises: frozenset[str]
    edits: tuple[Edit, ...]
    scenarios: tuple[str, ...] = ()
    """Where it shows soonest; all of them if none is named."""

    seeds: int = 4_000
    """Within how many seeds it must be caught."""


def sabotaged_copy(sabotage: Sabotage, folder: Path) -> Path:
    """A copy of the source with the sabotage in it. Returns the folder to put on the path."""
    shutil.copytree(SOURCE, folder / "lakepact", ignore=shutil.ignore_patterns("__pycache__"))
    for edit in sabotage.edits:
        path = folder / "lakepact" / edit.package / edit.module
        text = path.read_text()
        found = text.count(edit.old)
        if found != 1:
            raise ValueError(
                f"sabotage {sabotage.name!r}: its text occurs {found} times in {edit.module}; bring it up to date"
            )
        path.write_text(text.replace(edit.old, edit.new))
    return folder


def _one(name: str, promises: str, module: str, old: str, new: str, *scenarios: str) -> Sabotage:
    return Sabotage(name, frozenset(promises.split()), (Edit(module, old, new),), scenarios)


_LISTS: Final = ("lists", "lists again")
_SKEW: Final = ("skew", "skew again")
_TRAFFIC: Final = ("slow traffic",)
_OVERLAYS: Final = ("overlays",)
_SHARED: Final = ("shared overlays",)

SABOTAGES: Final = (
    _one(
        "an unknown lock is taken as held",
        "P2",
        "access.py",
        """            # Unknown, or a refusal that may be of our own earlier copy: only the cell itself can tell.
""",
        """            return self._written(document, over.token or "", len(data))
""",
        *_LISTS,
    ),
    _one(
        "an unknown lock is taken as refused because the cell has moved",
        "P9",
        "protocol.py",
        """                if written is not None:
                    return Held(written)
""",
        """                if written is not None:
                    return Held(written)
                return Moved(key, expected, expected + 1)
""",
        *_LISTS,
    ),
    _one(
        "a lock is cleared without fencing its record",
        "P2",
        "protocol.py",
        """            if resolved.standing is Standing.UNDECIDED and fresh:
""",
        """            if resolved.standing is Standing.UNDECIDED and decide.lease_over(
                blocker(resolved), self._access.now_ms()
            ):
                resolved = decide.Resolved(resolved.cell, Standing.STALE)
            if resolved.standing is Standing.UNDECIDED and fresh:
""",
        *_LISTS,
    ),
    _one(
        "a zombie reads the record again and adopts it",
        "P2 P9",
        "protocol.py",
        """        if committed is None:
            return None
        self._clean_up(committed, held)
""",
        """        if committed is None:
            found = await self._access.record(record.document.id)
            if found is None or found.document.state is not State.PREPARING:
                return None
            adopted = decide.committed(found.document, self._transaction.answer, self._access.now_ms())
            committed = await self._access.write_record(found, adopted)
        if committed is None:
            return None
        self._clean_up(committed, held)
""",
        *_LISTS,
    ),
    _one(
        "locks of an older epoch are counted",
        "P2",
        "protocol.py",
        """                if found == lock and fresh:
""",
        """                if fresh:
""",
        *_LISTS,
    ),
    _one(
        "a helper that knows only an old record clears a live lock",
        "P2",
        "decide.py",
        """    if document.lock is None or document.lock.transaction != record.id or document.lock.epoch > record.epoch:
        return None
""",
        """    if document.lock is None or document.lock.transaction != record.id:
        return None
    if document.lock.epoch > record.epoch:
        return document.rewritten(document.cell, None)
""",
        *_LISTS,
    ),
    _one(
        "locks are released before the epoch is swapped",
        "P2",
        "protocol.py",
        """        next_record = decide.stepped_back(record.document, self._access.identity(self._owner))
""",
        """        from dataclasses import replace

        await self._resolver.release(replace(record.document, state=State.RETRYABLE))
        next_record = decide.stepped_back(record.document, self._access.identity(self._owner))
""",
        *_LISTS,
    ),
    _one(
        "a take-over does not raise the epoch",
        "P2",
        "decide.py",
        """        epoch=record.epoch + 1,
        state=State.PREPARING,
""",
        """        epoch=max(1, record.epoch),
        state=State.PREPARING,
""",
        *_LISTS,
    ),
    _one(
        "a dropped cell is forgotten in touched",
        "P6",
        "decide.py",
        "touched=_union(record.touched, plan, reads)",
        "touched=_union(plan, reads)",
        *_LISTS,
    ),
    _one(
        "the planned revision is not compared",
        "P2",
        "protocol.py",
        "elif resolved.standing is not Standing.UNDECIDED and resolved.cell.revision == expected:",
        "elif resolved.standing is not Standing.UNDECIDED:",
        *_LISTS,
    ),
    _one(
        "a record is deleted while a late lock may still land",
        "P8",
        "recovery.py",
        "        kept_ms = settings.horizon_days * _DAY_MS + int(settings.slack_s * 1000)\n",
        "        kept_ms = 0\n",
        "collection",
    ),
    _one(
        "a record is deleted though a cell still carries its lock",
        "P8",
        "recovery.py",
        "        if not await self._resolver.release(record):\n            return Collection()\n",
        "",
        "collection",
    ),
    _one(
        "a record is trimmed before it is finalized",
        "P1 P3 P8 P9",
        "recovery.py",
        "            if version is None or not version.document.finalized:\n",
        "            if version is None or not version.document.state.final:\n",
        "collection",
    ),
    _one(
        "an id is used again after its record was collected",
        "P3",
        "identity.py",
        "    if made_ms < now_ms - horizon_days * _DAY_MS:\n",
        "    if made_ms < 0:\n",
        "collection",
    ),
    _one(
        "a cut compares cells only",
        "P1 P4",
        "reader.py",
        "        return None if cells_equal and records_equal else second\n",
        "        return None if cells_equal else second\n",
        *_TRAFFIC,
    ),
    _one(
        "a cut reads everything once and never again",
        "P1 P4",
        "reader.py",
        "                    second = await self._confirm(first, resolved) if len(keys) > 1 else None\n",
        "                    second = None\n",
        *_LISTS,
        "bank",
    ),
    _one(
        "validation ignores the locks of others",
        "P4",
        "protocol.py",
        "        if resolved.standing is Standing.UNDECIDED and key in blocker(resolved).plan:\n",
        "        if resolved.cell.revision < 0:\n",
        *_SKEW,
    ),
    _one(
        "what was only read is not validated",
        "P4",
        "protocol.py",
        "                if isinstance(outcome, AllHeld) and not record.document.reads_locked:\n",
        "                if isinstance(outcome, AllHeld) and not record.document.reads:\n",
        *_SKEW,
    ),
    _one(
        "a reader does not wait for an undecided transaction that has read",
        "P4",
        "decide.py",
        "            and bool(self.record.reads)\n",
        "            and not self.record.touched\n",
        *_TRAFFIC,
    ),
    _one(
        "a lock is stale as soon as its record is finalized, whenever the cell was read",
        "P1 P4",
        "decide.py",
        "    if lock is None or lock.transaction != record.id or lock.epoch != record.epoch:\n",
        "    if lock is None or lock.transaction != record.id or lock.epoch != record.epoch or record.finalized:\n",
        *_SKEW,
        "bank",
    ),
    _one(
        "a conflict is answered without owning the record",
        "P9",
        "protocol.py",
        """        if refused is None:
            return None
        self._clean_up(refused)
        return Conflict(""",
        """        if refused is not None:
            self._clean_up(refused)
        return Conflict(""",
        *_LISTS,
    ),
    _one(
        "a conflict is judged on a stale cache",
        "P9",
        "protocol.py",
        "            elif resolved.standing is not Standing.UNDECIDED and fresh:\n",
        "            elif resolved.standing is not Standing.UNDECIDED:\n",
        *_LISTS,
    ),
    _one(
        "an unknown commit is answered as busy",
        "P9",
        "protocol.py",
        "            raise OutcomeUnknown(record.document.id, str(error)) from error\n",
        "            return self._busy(None)  # type: ignore\n",
        *_LISTS,
    ),
    _one(
        "a commit is acknowledged before the swap is answered",
        "P5 P9",
        "protocol.py",
        """            committed = await self._access.write_record(record, decided)
""",
        """            async def later() -> None:
                await self._access.write_record(record, decided)

            self._access.tasks.background(later())
            return Committed(record.document.id, self._transaction.answer)
""",
        *_LISTS,
    ),
    _one(
        "the bytes of a cell repeat",
        "P2",
        "documents.py",
        "            writes=self.writes + 1,\n",
        "            writes=self.writes,\n",
        *_LISTS,
    ),
    _one(
        "the bytes of a record repeat",
        "P2",
        "decide.py",
        "    return replace(record, writes=record.writes + 1, expires_ms=expires_ms, lease_ms=lease_ms)\n",
        "    return replace(record, expires_ms=expires_ms, lease_ms=lease_ms)\n",
        *_OVERLAYS,
    ),
    _one(
        "a transaction is finalized before it is applied",
        "P3",
        "resolve.py",
        "        done = await self.release(version.document, held)\n",
        "        done = True\n",
        *_LISTS,
    ),
    _one(
        "finished work is finished again and again",
        "P6 P7",
        "decide.py",
        "        return Upkeep.NOTHING if record.finalized else Upkeep.FINISH\n",
        "        return Upkeep.FINISH\n",
        *_LISTS,
    ),
    _one(
        "recovery leaves what was prepared",
        "P6",
        "recovery.py",
        "            case Upkeep.EXPIRE:\n",
        """            case Upkeep.EXPIRE if version.document.state is State.PREPARED:
                return Recovery()
            case Upkeep.EXPIRE:
""",
        *_OVERLAYS,
    ),
    _one(
        "one id serves two different requests",
        "P3 P9",
        "decide.py",
        "    if record.request_hash != request_hash:\n",
        "    if record.id == request_hash:\n",
        *_LISTS,
    ),
    Sabotage(
        "a staging call that is sent again is staged twice",
        frozenset({"P3"}),
        (
            Edit(
                "staginglog.py",
                "        if self.sealed or entry.operation in self.operations:\n",
                "        if self.sealed:\n",
            ),
            Edit(
                "staging.py",
                "        while operation_id not in log.operations:\n",
                "        staged = False\n        while not staged:\n",
            ),
            Edit(
                "staging.py",
                "            await self._keeper.append(log, self._entry(transaction_id, place, operation_id, ",
                "            staged = await self._keeper.append(log, self._entry(transaction_id, place, operation_id, ",
            ),
        ),
        _OVERLAYS,
    ),
    _one(
        "the reads of an overlay are not one cut",
        "P1 P4",
        "overlay.py",
        "    cells = await reader.cut(list(dict.fromkeys([*noted, *keys])) if new else list(keys))\n",
        "    cells = await reader.cut(list(keys))\n",
        *_OVERLAYS,
    ),
    _one(
        "two readers of one overlay do not mind each other",
        "P1 P4",
        "staging.py",
        "            if not reads or await self._append_reads(transaction_id, log, place, reads):\n",
        "            if not reads or await self._append_reads(transaction_id, log, log.length + 1, reads):\n",
        *_OVERLAYS,
    ),
    _one(
        "an overlay is called closed though its abort was refused",
        "P9",
        "openrecord.py",
        """            if await access.swap_record_once(version, aborted) is None:
                await access.pause(attempt)
        elif record.state in allowed:
""",
        """            await access.swap_record_once(version, aborted)
            raise closed(aborted)
        elif record.state in allowed:
""",
        *_OVERLAYS,
    ),
    _one(
        "two plans on one staged value are both staged",
        "P2",
        "staging.py",
        "            objection = log.outdated(transaction_id, planned_on) or _noted_otherwise(log, planned_on)\n",
        "            objection = _noted_otherwise(log, planned_on)\n",
        *_SHARED,
    ),
    _one(
        "what was shown is compared with a log that has grown since",
        "P2",
        "staging.py",
        "            await self._keeper.append(log, self._entry(transaction_id, place, operation_id, ",
        "            place = log.length + 1\n"
        "            await self._keeper.append(log, self._entry(transaction_id, place, operation_id, ",
        *_SHARED,
    ),
    _one(
        "what a plan was made on is not noted",
        "P4",
        "staging.py",
        "if not seen.staged and key not in log.seen",
        "if key in writes and key not in log.staged",
        *_SHARED,
    ),
    _one(
        "a look is content with what the process remembers of the log",
        "P1",
        "overlay.py",
        "            grown = await self._keeper.look_on(transaction_id, log, length)\n",
        "            grown = False\n",
        *_SHARED,
    ),
    _one(
        "ages are judged by the clock of the machine",
        "P8",
        "trusted_time.py",
        "            return 0\n        return min(clock_ms, expected_ms)\n",
        "            return clock_ms\n        return min(clock_ms, expected_ms)\n",
        "collection",
    ),
    _one(
        "a server with a wrong clock writes the watermark",
        "P8 P9",
        "trusted_time.py",
        "        return _disputed(evidence, time_ms, Basis.UPTIME)\n",
        "        return Judgement(evidence.clock_ms, True, Basis.UPTIME, watermark=_confirmed_mark(evidence))\n",
        "collection",
    ),
    _one(
        "a clock that was never observed counts after a restart",
        "P8",
        "trusted_time.py",
        "    observed = Watermark(clock_ms, evidence.uptime, since_ms=evidence.uptime.ms, confirmed_ms=floor_ms)\n"
        "    return Judgement(clock_ms, False, Basis.RESTARTED, watermark=observed)\n",
        "    return Judgement(clock_ms, True, Basis.RESTARTED, watermark=_confirmed_mark(evidence))\n",
        "collection",
    ),
    _one(
        "the clock of a store is not compared with the clock of the machine",
        "P8 P9",
        "trusted_time.py",
        "        return _disputed(evidence, store_ms, Basis.STORE)\n    return Judgement(clock_ms, True, Basis.STORE, ",
        "        return Judgement(clock_ms, True, Basis.STORE)\n    return Judgement(clock_ms, True, Basis.STORE, ",
        "collection",
    ),
    _one(
        "read cells are said to be locked and are not",
        "P4",
        "protocol.py",
        "        wanted.update(record.reads)\n",
        "        wanted.update({})\n",
        *_OVERLAYS,
    ),
    Sabotage(
        "an aborted creation deletes its null cell",
        frozenset({"P8"}),
        (
            Edit(
                "resolve.py",
                "            next_document = decide.settled(version.document, record)\n",
                "            next_document = decide.settled(version.document, record)\n"
                "            if next_document is not None and next_document.revision == 0:\n"
                "                from lakepact.kernel.keys import name_of_cell\n\n"
                "                await self._access.delete(name_of_cell(key))\n"
                "                return True\n",
            ),
        ),
        _LISTS,
    ),
    _one(
        "a namespace is dropped while a creation below it is undecided",
        "P4",
        "reader.py",
        "            cell = (await self.cut([key]))[key] if seen.blocks_readers else seen.cell\n",
        "            cell = seen.cell\n",
        "namespaces",
    ),
    _one(
        "one transaction at a time for the whole store",
        "P10",
        "protocol.py",
        "                outcome = await self._lock_all(record)\n",
        """                for entry in await self._access.list("transactions/", None, 100):
                    other = await self._access.record(TransactionId(entry.name[-41:-5]))
                    if other is not None and other.document.state is State.PREPARING:
                        if other.document.id != self._transaction.id:
                            return self._busy(other.document.id)
                outcome = await self._lock_all(record)
""",
        *_LISTS,
        "calm",
    ),
)

PUBLISHING: Final = (
    Sabotage(
        "a serializable transaction is rebased past a table it has loaded",
        frozenset({"P4"}),
        (
            Edit(
                "publish.py",
                """    if isolation is Isolation.SERIALIZABLE:
        return False
    notes""",
                """    notes""",
                "catalog",
            ),
        ),
        seeds=200,
    ),
    Sabotage(
        "metadata changes are rebased without comparing what others have changed",
        frozenset({"P2"}),
        (
            Edit(
                "publish.py",
                "if parts := changed_parts(base, newer, commit.updates):",
                "if parts := changed_parts(newer, newer, commit.updates):",
                "catalog",
            ),
        ),
        seeds=200,
    ),
    Sabotage(
        "properties are left out of what is compared",
        frozenset({"P2"}),
        (
            Edit(
                "rebase.py",
                """yield from (("properties", name) for name in body["updates"])""",
                """yield from ()""",
                "iceberg",
            ),
        ),
        seeds=200,
    ),
    Sabotage(
        "a name that was created and dropped inside is no dependency",
        frozenset({"P4"}),
        (
            Edit(
                "publish.py",
                "            reads.update({write.key: write.revision for write in undone})\n",
                "            pass\n",
                "catalog",
            ),
        ),
        seeds=400,
    ),
)
"""Sabotages of how the catalog publishes a transaction, for `tests.sim.publishing`."""

LOCATIONS: Final = (
    Sabotage(
        "a location is not announced before the scan",
        frozenset({"P4"}),
        (
            Edit(
                "overlaps.py",
                "        if draft.is_staged or owner_of(cell.value) is not None:\n",
                "        if cell.revision >= 0:\n",
                "catalog",
            ),
        ),
        seeds=2_000,
    ),
    Sabotage(
        "a creation leaves the note of a folder above in place",
        frozenset({"P4"}),
        (
            Edit(
                "overlaps.py",
                "                    if creates and not draft.is_staged:\n",
                "                    if creates and draft.is_staged:\n",
                "catalog",
            ),
        ),
        seeds=2_000,
    ),
    Sabotage(
        "publishing does not announce a location before the scan",
        frozenset({"P4"}),
        (
            Edit(
                "conditions.py",
                "                announced = await self._announced(write, place, sees)\n",
                "                announced = None\n",
                "catalog",
            ),
        ),
        seeds=6_000,
    ),
    Sabotage(
        "publishing does not read a folder again that the transaction has read",
        frozenset({"P4"}),
        (
            Edit(
                "conditions.py",
                "if key not in writes and (key not in reads or key in folders)]",
                "if key not in writes and key not in reads]",
                "catalog",
            ),
        ),
        seeds=6_000,
    ),
    Sabotage(
        "publishing leaves the note of a folder above in place",
        frozenset({"P4"}),
        (
            Edit(
                "conditions.py",
                "                writes[key] = Write(key, cell.revision, None)\n                continue\n",
                "                reads[key] = cell.revision\n                continue\n",
                "catalog",
            ),
        ),
        seeds=6_000,
    ),
)
"""Sabotages of how locations are kept apart, for `tests.sim.locations`."""

RESTORES: Final = (
    Sabotage(
        "the generation is not raised at a restore",
        frozenset({"P4", "P5", "P9"}),
        (
            Edit(
                "restore.py",
                "max(clock.now_ms(), whole.generation + 1)",
                "whole.generation",
                "upkeep",
            ),
        ),
        seeds=50,
    ),
    Sabotage(
        "the name of a receipt does not contain the generation",
        frozenset({"P5"}),
        (
            Edit(
                "receipts.py",
                """f"cell:{id}:{generation}:{revision}" if generation else f"cell:{id}:{revision}\"""",
                """f"cell:{id}:{revision}\"""",
                "catalog",
            ),
        ),
        seeds=50,
    ),
    Sabotage(
        "a receipt does not say its generation",
        frozenset({"P4", "P5"}),
        (
            Edit(
                "receipts.py",
                """        "generation": change.generation,\n""",
                """        "generation": 0,\n""",
                "catalog",
            ),
        ),
        seeds=50,
    ),
    Sabotage(
        "a restored cell is taken for a change",
        frozenset({"P9"}),
        (
            Edit(
                "reconcile.py",
                "    return cell.revision == 1 and cell.writer is not None and",
                "    return restored_ms < 0 and cell.writer is not None and",
                "upkeep",
            ),
        ),
        seeds=50,
    ),
    Sabotage(
        "the transactions of a restore are taken for changes",
        frozenset({"P9"}),
        (
            Edit(
                "reconcile.py",
                """.get("operation") in (MARKING, RESTORING):""",
                """.get("operation") == MARKING:""",
                "upkeep",
            ),
        ),
        seeds=50,
    ),
    Sabotage(
        "records are not restored",
        frozenset({"P3"}),
        (
            Edit(
                "restore.py",
                "        if isinstance(line, SavedRecord):\n",
                "        if isinstance(line, SavedRecord) and line.state is State.FAILED:\n",
                "upkeep",
            ),
        ),
        seeds=100,
    ),
    Sabotage(
        "a metadata file of the lost future is taken for a new one of the same name",
        frozenset({"P5"}),
        (
            Edit(
                "files.py",
                "        if not await self._blobs.put(name, data):\n            return False\n",
                "        await self._blobs.put(name, data)\n",
                "catalog",
            ),
        ),
        seeds=200,
    ),
    Sabotage(
        "garbage collection takes the note of a drop for proof that the table is gone",
        frozenset({"P8"}),
        (
            Edit(
                "dropped.py",
                "        draft.write(note, None)\n",
                "        note.encode()\n",
                "catalog",
            ),
            Edit(
                "purge.py",
                "            if one.id not in going or one.why not in (Why.DROPPED, Why.PURGING)\n",
                "            if one.id not in going\n",
                "upkeep/collection",
            ),
        ),
        seeds=150,
    ),
)
"""Sabotages of restores and of the receipts after them, for `tests.sim.restores`."""
