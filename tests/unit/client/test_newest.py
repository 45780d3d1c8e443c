"""The newest transactions of very many: as all of them would show, without reading all of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from lakepact.client.caller import Caller
from lakepact.client.transactions import Transactions
from lakepact.kernel.identity import first_id_of, uuid7

NOW_MS = 1_800_000_000_000
MINUTE_MS = 60_000


class Server:
    """Lists transactions as the real one does, and counts what it has listed."""

    def __init__(self, ids: list[str]) -> None:
        self._ids = sorted(ids)
        self.machine = SimpleNamespace(now_ms=lambda: NOW_MS)
        self.listed = 0

    def read(self, path: str, query: Mapping[str, str]) -> Any:
        after = query["pageToken"] or (first_id_of(int(query["since"])) if "since" in query else "")
        there = [one for one in self._ids if one > after]
        page = there[: int(query["pageSize"])]
        self.listed += len(page)
        body = {
            "transactions": [
                {
                    "transaction-id": one,
                    "state": "committed",
                    "isolation": "serializable",
                    "warehouse": "main",
                    "prefix": f"main@{one}",
                    "created-at": "2026-11-17T00:00:00Z",
                }
                for one in page
            ],
            "next-page-token": page[-1] if len(page) < len(there) else None,
        }
        return SimpleNamespace(json=lambda: json.loads(json.dumps(body)))


def _made(*minutes_ago: float) -> list[str]:
    return [uuid7(NOW_MS - int(ago * MINUTE_MS), number) for number, ago in enumerate(minutes_ago)]


@pytest.mark.parametrize("limit", [1, 3, 100, 400])
@pytest.mark.parametrize(
    "ids",
    [
        [],
        _made(0.1),
        _made(0.1, 0.2, 5, 70, 5_000, 5_000, 100_000, 1_000_000),
        _made(*(number / 3 for number in range(350))),
        # A clock that runs ahead of ours, and one that stood still.
        _made(-60 * 24 * 400, -3, 1),
        _made(*([2_000_000] * 250)),
    ],
    ids=["none", "one", "some", "many", "ahead", "long ago"],
)
def test_they_are_those_that_all_of_them_would_show(ids: list[str], limit: int) -> None:
    transactions = Transactions(cast(Caller, Server(ids)))
    newest = sorted(ids, reverse=True)
    for before in [None, *newest[::7]]:
        expected = [one for one in newest if before is None or one < before]
        found, more = transactions.newest(limit=limit, before=before)
        assert [one.id for one in found] == expected[:limit]
        assert more == (len(expected) > limit)


def test_of_very_many_only_the_newest_are_read() -> None:
    server = Server(_made(*(number / 10 for number in range(20_000))))
    found, more = Transactions(cast(Caller, server)).newest(limit=100)
    assert (len(found), more) == (100, True)
    assert server.listed < 1_000
