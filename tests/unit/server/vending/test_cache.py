"""Credentials are made once for all who want them, kept until shortly before they expire, and bounded."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

from lakepact.runtime import SystemClock
from lakepact.server.vending.cache import Checked, Credentials, Key
from lakepact.server.vending.scope import Credential, NotScopable, ProviderFailed, Right

KEY = ("1", "s3://lake/t", Right.READ, None)


class Clock(SystemClock):
    now = 0

    def now_ms(self) -> int:
        return self.now


@dataclass
class Mint:
    clock: Clock
    life_ms: int = 3_600_000
    made: int = 0
    fails: bool = False
    go: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self) -> Credential:
        await self.go.wait()
        if self.fails:
            raise ProviderFailed("no", temporary=True)
        self.made += 1
        return Credential("p", {}, self.clock.now + self.life_ms, str(self.made))


def world(**more: int) -> tuple[Clock, Mint, Credentials]:
    clock = Clock()
    mint = Mint(clock)
    mint.go.set()
    return clock, mint, Credentials(clock, **more)


async def test_it_is_kept_until_ten_minutes_before_it_expires() -> None:
    clock, mint, credentials = world()
    assert (await credentials.get(KEY, mint)).tag == "1"
    clock.now = 3_000_000 - 1
    assert (await credentials.get(KEY, mint)).tag == "1"
    clock.now = 3_000_000
    assert (await credentials.get(KEY, mint)).tag == "2"


async def test_a_short_one_is_kept_for_half_its_life() -> None:
    # Whatever was asked for: the cloud may give less, as Google does with what is left of the server's own.
    for life_ms in (900_000, 500_000, 301_000):
        clock, mint, credentials = world()
        mint.life_ms = life_ms
        await credentials.get(KEY, mint)
        clock.now = life_ms // 2 - 1
        assert (await credentials.get(KEY, mint)).tag == "1"
        clock.now = life_ms // 2
        assert (await credentials.get(KEY, mint)).tag == "2"


async def test_tables_locations_rights_and_transactions_do_not_share() -> None:
    _, mint, credentials = world()
    others: list[Key] = [
        ("2", "s3://lake/t", Right.READ, None),
        ("1", "s3://lake/u", Right.READ, None),
        ("1", "s3://lake/t", Right.WRITE, None),
        ("1", "s3://lake/t", Right.READ, "staged"),
    ]
    for key in (KEY, *others):
        await credentials.get(key, mint)
    assert mint.made == 5


async def test_all_who_ask_at_once_get_one_and_one_who_leaves_takes_nothing_away() -> None:
    _, mint, credentials = world()
    mint.go.clear()
    first, *others = [asyncio.create_task(credentials.get(KEY, mint)) for _ in range(5)]
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    mint.go.set()
    assert {one.tag for one in await asyncio.gather(*others)} == {"1"}
    assert first.cancelled() and mint.made == 1


async def test_a_failure_is_everybodys_who_waits_and_is_not_kept() -> None:
    _, mint, credentials = world()
    mint.fails = True
    found = await asyncio.gather(*(credentials.get(KEY, mint) for _ in range(3)), return_exceptions=True)
    assert all(isinstance(one, ProviderFailed) for one in found)
    mint.fails = False
    assert (await credentials.get(KEY, mint)).tag == "1"


async def test_an_old_one_that_cannot_be_renewed_is_not_given_again() -> None:
    clock, mint, credentials = world()
    await credentials.get(KEY, mint)
    clock.now, mint.fails = 3_500_000, True
    with pytest.raises(ProviderFailed):
        await credentials.get(KEY, mint)


async def test_there_are_never_more_than_so_many() -> None:
    _, mint, credentials = world(most=2)
    for name in ("a", "b", "c", "b", "a"):
        await credentials.get((name, "s3://lake/t", Right.READ, None), mint)
    assert mint.made == 4


async def test_what_was_found_is_remembered_for_an_hour_and_a_refusal_is_not() -> None:
    clock, looked = Clock(), 0
    checked = Checked(clock, most=2)

    async def look() -> None:
        nonlocal looked
        looked += 1
        if looked == 1:
            raise NotScopable("not now")

    with pytest.raises(NotScopable):
        await checked.once("a", look)
    for moment, expected in ((0, 2), (3_599_999, 2), (3_600_000, 3)):
        clock.now = moment
        await checked.once("a", look)
        assert looked == expected
    for key in ("b", "c", "a"):
        await checked.once(key, look)
    assert looked == 6
