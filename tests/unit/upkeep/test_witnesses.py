"""Who made a version: asked of the store once, however much was changed together."""

from __future__ import annotations

import pytest

from lakepact.kernel.identity import TransactionId, uuid7
from lakepact.kernel.keys import key_of
from lakepact.kernel.model import Committed, Transaction, TransactionRecord, Write
from lakepact.runtime import SystemClock, SystemRng
from lakepact.stores import open_store
from lakepact.upkeep.witnesses import Witnesses


async def test_what_was_changed_together_has_its_plan_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    store = await open_store("memory://")
    made, unknown = (uuid7(SystemClock().now_ms(), SystemRng().bits(74)) for _ in range(2))
    writes = tuple(Write(key_of("main", "state", f"t{number}"), 0, {}) for number in range(3))
    assert isinstance(await store.commit(Transaction(made, "hash", writes, answer={"said": 1})), Committed)
    asked: list[TransactionId] = []
    lookup = store.lookup

    async def counted(transaction_id: TransactionId) -> TransactionRecord | None:
        asked.append(transaction_id)
        return await lookup(transaction_id)

    monkeypatch.setattr(store, "lookup", counted)
    witnesses = Witnesses(store)
    for _ in writes:
        found = await witnesses.by_id(made)
        assert found is not None and found.answer == {"said": 1}
        assert await witnesses.by_id(unknown) is None
    # What is not committed yet may be so the next time.
    assert asked == [made, unknown, unknown, unknown]
    await store.close()
