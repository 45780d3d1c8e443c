"""When a Delta table has moved: whether a change may go on past that, and what is said if it may not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace

from lakepact.catalog.delta_steps import StagedDelta, staged_steps, version_of
from lakepact.catalog.errors import CommitFailed
from lakepact.catalog.pointers import Change, Pointer, identifier_json, shown
from lakepact.delta.actions import Action
from lakepact.delta.conflicts import Conflict, check, summarize, supposed_reads
from lakepact.delta.ports import DeltaRows, ErrorRow
from lakepact.errors import LakepactError
from lakepact.iceberg.fields import JsonObject
from lakepact.kernel.identity import TransactionId
from lakepact.kernel.model import Cell


async def check_may_go_on(
    rows: DeltaRows,
    pointer: Pointer,
    actions: Iterable[Action],
    planned_on: int,
    until: int,
    *,
    head_was_read: bool = False,
) -> None:
    """Raise the refusal of a change that was planned on a version, if it conflicts with one of those up to `until`.

    `head_was_read`: the transaction has loaded the table, and depends on all that a load without files shows.
    """
    listed = list(actions)
    since = await rows.since(pointer.id, planned_on, until)
    verdict = check(
        summarize(listed),
        replace(supposed_reads(listed), head=head_was_read),
        planned_on,
        [(one.row.version, summarize(one.actions)) for one in since],
    )
    if isinstance(verdict, Conflict):
        raise version_conflict(pointer, planned_on, verdict.message)


async def rebased(
    rows: DeltaRows,
    transaction_id: TransactionId,
    staged: Pointer,
    note: StagedDelta,
    current: Cell,
    now_ms: int,
    *,
    head_was_read: bool = False,
) -> Pointer:
    """Return the pointer of a table to which a transaction has only added, one version after the table's newest."""
    now = Pointer.of(current)
    if now is None or now.identifier != staged.identifier:
        raise CommitFailed(f"Delta table {shown(staged.identifier)} was renamed or dropped meanwhile")
    [step] = (await staged_steps(rows, transaction_id, {now.id: note})).values()
    version = version_of(now)
    await check_may_go_on(rows, now, step.actions, note.base_version, version, head_was_read=head_was_read)
    summary = {**now.summary, "version": version + 1, "ict-ms": now_ms}
    return Pointer.to_delta(now.identifier, summary, Change.COMMIT, now.metadata_location)


async def log_conflicts(
    rows: DeltaRows | None, transaction_id: TransactionId, refusal: CommitFailed, now_ms: int
) -> None:
    """For those who look for reasons later. It is not worth failing for."""
    if rows is None or "version-conflicts" not in refusal.details:
        return
    with suppress(LakepactError):
        await rows.log_errors(
            [
                ErrorRow(
                    transaction_id,
                    one["table-id"],
                    one["expected"],
                    one["actual"],
                    "VersionConflict",
                    refusal.message,
                    now_ms,
                )
                for one in refusal.details["version-conflicts"]
            ]
        )


def version_conflict(pointer: Pointer, expected: int, why: str) -> CommitFailed:
    """The refusal of a change whose table has moved. It says what was expected and what is there."""
    actual = version_of(pointer)
    return CommitFailed(
        f"Delta table {shown(pointer.identifier)} was expected at version {expected} and is at version {actual}: {why}"
        f". Nothing was applied; read it again and retry",
        {"version-conflicts": [version_conflict_json(pointer, expected)]},
    )


def version_conflict_json(pointer: Pointer, expected: int) -> JsonObject:
    return {
        "identifier": identifier_json(pointer.identifier),
        "table-id": pointer.id,
        "expected": expected,
        "actual": version_of(pointer),
    }


def all_of(conflicts: Sequence[CommitFailed]) -> CommitFailed:
    """One refusal that names every table that has moved."""
    if len(conflicts) == 1:
        return conflicts[0]
    named = [one for conflict in conflicts for one in conflict.details["version-conflicts"]]
    return CommitFailed("; ".join(conflict.message for conflict in conflicts), {"version-conflicts": named})
