"""The record of an open transaction on a document store, as each of its steps needs to find it."""

from __future__ import annotations

from lakepact.errors import TransactionNotFound, WrongState
from lakepact.kernel import decide
from lakepact.kernel.access import Access, RecordVersion
from lakepact.kernel.identity import TransactionId
from lakepact.kernel.model import State
from lakepact.kernel.protocol import closed


async def found_record(access: Access, transaction_id: TransactionId) -> RecordVersion:
    version = await access.record(transaction_id)
    if version is None:
        raise TransactionNotFound(f"there is no transaction {transaction_id}; begin it first")
    return version


async def live_record(access: Access, transaction_id: TransactionId, *allowed: State) -> RecordVersion:
    """The record, in one of these states and not past its time. One that is past it is aborted on the way.

    Only what the record says is told to the caller: if our abort was refused, somebody may have renewed it.
    """
    attempt = 0
    while True:
        version = await found_record(access, transaction_id)
        record = version.document
        if decide.expired(record, access.now_ms()):
            aborted = decide.aborted(record, access.now_ms())
            if await access.swap_record_once(version, aborted) is None:
                await access.pause(attempt)
        elif record.state in allowed:
            return version
        elif record.state.final:
            raise closed(record)
        else:
            raise WrongState(
                f"transaction {record.id} is {record.state.value}; this step needs it to be "
                f"{' or '.join(state.value for state in allowed)}. Look it up to learn how it ends"
            )
        attempt += 1
