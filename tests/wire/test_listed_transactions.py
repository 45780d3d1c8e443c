"""Lists of transactions, where most are somebody else's: of other people, other warehouses, other accounts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.wire.people import Person, house, on_namespace
from tests.wire.test_detours import STORES


async def _begin(person: Person) -> str:
    answer = await person.post("/transactions")
    assert answer.status == 200, answer.body
    return str(answer.json()["transaction-id"])


async def _listed(person: Person, size: int, others: set[str]) -> list[str]:
    """Page by page, with no byte of anybody else's on any of them."""
    found: list[str] = []
    token: str | None = ""
    while token is not None:
        page = await person.get(f"/transactions?pageToken={token}&pageSize={size}&state=open")
        assert not any(one.encode() in page.body for one in others)
        listed = [one["transaction-id"] for one in page.json()["transactions"]]
        assert len(listed) <= size
        found += listed
        token = page.json()["next-page-token"]
    return found


@pytest.mark.parametrize("store", STORES)
async def test_t_right_16_a_list_of_transactions_goes_on_from_ones_own(store: str, tmp_path: Path) -> None:
    async with house(tmp_path, store=STORES[store].format(tmp_path) or None) as people:
        await people.root.namespace()
        await people.root.grant("user:bob", "read", **on_namespace())
        mine, others = [], set()
        for _ in range(3):
            others |= {await _begin(people.root), await _begin(people.mallory)}
            mine.append(await _begin(people.bob))
        others.add(await _begin(people.root))
        for size in (1, 2, 3, 4):
            assert await _listed(people.bob, size, others) == sorted(mine)
        page = (await people.bob.get("/transactions?pageToken=&pageSize=3&state=open")).json()
        assert (len(page["transactions"]), page["next-page-token"]) == (3, None), "there is no more that one may see"


@pytest.mark.parametrize("store", STORES)
async def test_t_tenant_3_a_list_of_transactions_tells_of_no_other_account(store: str, tmp_path: Path) -> None:
    async with house(tmp_path, store=STORES[store].format(tmp_path) or None) as people:
        ours, theirs = set(), set()
        for _ in range(3):
            theirs.add(await _begin(people.mallory))
            ours.add(await _begin(people.root))
        theirs.add(await _begin(people.mallory))
        assert await _listed(people.root, 1, theirs) == sorted(ours)
        assert await _listed(people.mallory, 1, ours) == sorted(theirs)


async def test_a_list_looks_at_so_much_a_request_and_then_names_a_moment(tmp_path: Path) -> None:
    async with house(tmp_path) as people:
        await people.root.namespace()
        await people.root.grant("user:bob", "read", **on_namespace())
        others = {await _begin(people.root) for _ in range(50)}
        mine = await _begin(people.bob)
        page = (await people.bob.get("/transactions?pageToken=&pageSize=1&state=open")).json()
        assert not page["transactions"] and page["next-page-token"].endswith("-7000-8000-000000000000")
        assert await _listed(people.bob, 1, others) == [mine]


async def test_a_page_token_that_is_none_is_refused(tmp_path: Path) -> None:
    async with house(tmp_path) as people:
        refused = await people.root.get("/transactions?pageToken=nonsense&pageSize=1")
        assert refused.status == 400 and "begin again without one" in refused.error["message"]


async def test_a_list_begins_at_a_moment(tmp_path: Path) -> None:
    async with house(tmp_path) as people:
        # Ids of one millisecond have no order.
        begun = sorted([await _begin(people.root) for _ in range(3)])
        moment = int(begun[1][:8] + begun[1][9:13], 16)

        async def since(moment: object) -> list[str]:
            page = await people.root.get(f"/transactions?state=open&since={moment}")
            assert page.status == 200, page.body
            return [one["transaction-id"] for one in page.json()["transactions"]]

        assert await since(0) == begun
        # The first may have been begun in the same millisecond.
        assert [one for one in await since(moment) if one >= begun[1]] == begun[1:]
        assert await since(moment + 60_000) == []
        assert await since(10**17) == []
        refused = await people.root.get("/transactions?since=yesterday")
        assert refused.status == 400
        assert b"since is a whole number" in refused.body


async def test_a_list_says_whose_each_is_and_leaves_out_what_nobody_has_asked_for(tmp_path: Path) -> None:
    async with house(tmp_path) as people:
        await people.root.namespace()
        await people.root.grant("user:bob", "create", **on_namespace())
        begun = (await people.bob.post("/transactions")).json()
        # Where its files are is noted outside of it.
        await people.bob.at(begun["prefix"]).table("t")
        assert (await people.bob.post(f"/transactions/{begun['transaction-id']}/commit")).status == 200
        listed = (await people.root.get("/transactions")).json()["transactions"]
        # Of bob's commit another one follows, in which the new table is given to him.
        assert sorted(one["principal"] for one in listed) == ["bob", "bob", "root", "root"]
