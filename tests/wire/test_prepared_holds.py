"""What a prepared transaction holds: only what its principal may change, for a bounded time, and never beyond the reach
of whoever manages it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.support.postgres import LazyPostgres
from tests.wire.conftest import fresh_database
from tests.wire.people import House, Person, house, on_namespace, on_table
from tests.wire.world import Json, set_properties, table_path

CHANGE: Json = {"requirements": [], "updates": [set_properties(a="1")]}


@pytest.fixture(params=["sqlite", "file", "postgres"])
def people(
    request: pytest.FixtureRequest, tmp_path: Path, postgres: LazyPostgres
) -> AbstractAsyncContextManager[House]:
    match request.param:
        case "sqlite":
            return house(tmp_path)
        case "file":
            return house(tmp_path, store=f"file://{tmp_path}/cells")
        case _:
            return _on_postgres(tmp_path, postgres.url())


@asynccontextmanager
async def _on_postgres(folder: Path, url: str) -> AsyncIterator[House]:
    async with fresh_database(url) as store, house(folder, store=store) as people:
        yield people


async def furnish(people: House) -> None:
    """`db.shared` is Ann's, who manages it; Eve may read it. `own.t` is Eve's."""
    await people.root.namespace("db")
    await people.root.table("shared")
    await people.root.namespace("own")
    await people.root.table("t", "own")
    for holder, role, on in (
        ("user:ann", "manage", on_table("shared")),
        ("user:eve", "read", on_table("shared")),
        ("user:eve", "manage", on_namespace("own")),
    ):
        assert (await people.root.grant(holder, role, **on)).status in (200, 204)


async def begun(person: Person, **options: Any) -> tuple[str, Person]:
    answer = await person.post("/transactions", {"ttl-seconds": 86_400, **options})
    assert answer.status == 200, answer.body
    transaction = answer.json()["transaction-id"]
    return transaction, person.at(f"main@{transaction}")


async def own_change(inside: Person, value: str = "1") -> None:
    body = {"requirements": [], "updates": [set_properties(a=value)]}
    answer = await inside.post(table_path("t", "own"), body)
    assert answer.status == 200, answer.body


async def test_t_right_17_a_reader_cannot_hold_a_table_against_its_owners(people: House) -> None:
    await furnish(people)
    transaction, inside = await begun(people.eve)
    assert (await inside.get(table_path("shared"))).status == 200
    await own_change(inside)
    answer = await people.eve.post(f"/transactions/{transaction}/prepare")
    assert answer.status == 403, answer.body
    assert "db.shared" in answer.error["message"] and "without preparing" in answer.error["message"]
    # Nothing is held: the owner can commit.
    assert (await people.ann.post(table_path("shared"), CHANGE)).status == 200
    assert (await people.ann.delete(table_path("shared"))).status == 204


async def test_what_was_read_is_validated_by_a_commit_without_prepare(people: House) -> None:
    await furnish(people)
    answers = {}
    for moves in (False, True):
        transaction, inside = await begun(people.eve)
        assert (await inside.get(table_path("shared"))).status == 200
        await own_change(inside, f"moves {moves}")
        assert (await people.eve.post(f"/transactions/{transaction}/prepare")).status == 403
        if moves:
            assert (await people.ann.post(table_path("shared"), CHANGE)).status == 200
        answers[moves] = (await people.eve.post(f"/transactions/{transaction}/commit")).status
    assert answers == {False: 200, True: 409}


async def test_under_snapshot_isolation_a_reader_prepares_and_holds_only_what_it_writes(people: House) -> None:
    await furnish(people)
    transaction, inside = await begun(people.eve, isolation="snapshot")
    assert (await inside.get(table_path("shared"))).status == 200
    await own_change(inside)
    assert (await people.eve.post(f"/transactions/{transaction}/prepare")).status == 200
    assert (await people.ann.post(table_path("shared"), CHANGE)).status == 200
    assert (await people.eve.post(f"/transactions/{transaction}/commit")).status == 200


@pytest.mark.parametrize("path", [table_path("missing"), "/namespaces/db"])
async def test_holding_a_free_name_or_a_namespace_takes_the_right_to_create(people: House, path: str) -> None:
    await furnish(people)
    assert (await people.root.grant("user:eve", "read", **on_namespace("db"))).status in (200, 204)
    transaction, inside = await begun(people.eve)
    assert (await inside.get(path)).status in (200, 404)
    await own_change(inside)
    assert (await people.eve.post(f"/transactions/{transaction}/prepare")).status == 403
    await people.root.table("missing")


async def test_who_may_write_a_table_holds_it_and_who_manages_it_sees_and_aborts_that(people: House) -> None:
    await furnish(people)
    assert (await people.root.grant("user:eve", "write", **on_table("shared"))).status in (200, 204)
    transaction, inside = await begun(people.eve, properties={"job": "private"})
    assert (await inside.get(table_path("shared"))).status == 200
    await own_change(inside)
    assert (await people.eve.post(f"/transactions/{transaction}/prepare")).status == 200
    shown = await people.ann.get(f"/transactions/{transaction}")
    assert shown.status == 200, shown.body
    assert (shown.json()["state"], shown.json()["principal"]) == ("prepared", "eve")
    # What else it does, and what it was begun with, is not for them.
    assert "own" not in str(shown.json()["changes"]) and "private" not in str(shown.json())
    assert (await people.bob.get(f"/transactions/{transaction}")).status == 403
    assert (await people.bob.post(f"/transactions/{transaction}/abort")).status == 403
    for step in ("commit", "renew", "prepare"):
        assert (await people.ann.post(f"/transactions/{transaction}/{step}")).status == 403
    assert (await people.ann.post(f"/transactions/{transaction}/abort")).status == 200
    assert (await people.ann.post(table_path("shared"), CHANGE)).status == 200
    assert (await people.eve.post(f"/transactions/{transaction}/commit")).status == 400


async def test_a_prepared_transaction_is_bounded_however_long_it_was_to_live(people: House) -> None:
    await furnish(people)
    transaction, inside = await begun(people.eve)
    await own_change(inside)
    prepared = await people.eve.post(f"/transactions/{transaction}/prepare")
    assert prepared.status == 200, prepared.body
    renewed = await people.eve.post(f"/transactions/{transaction}/renew", {"ttl-seconds": 86_400})
    assert renewed.status == 200, renewed.body
    for answer in (prepared, renewed):
        held_s = _seconds(answer.json()["expires-at"]) - _seconds(answer.json()["created-at"])
        # An hour, and however long this machine took from one step to the next.
        assert held_s < 3_600 + 3_600


async def test_who_has_lost_the_right_does_not_renew_what_is_held(people: House) -> None:
    await furnish(people)
    assert (await people.root.grant("user:eve", "write", **on_table("shared"))).status in (200, 204)
    transaction, inside = await begun(people.eve)
    assert (await inside.get(table_path("shared"))).status == 200
    await own_change(inside)
    assert (await people.eve.post(f"/transactions/{transaction}/prepare")).status == 200
    assert (await people.root.revoke("user:eve", **on_table("shared"))).status in (200, 204)
    assert (await people.eve.post(f"/transactions/{transaction}/renew")).status == 403


def _seconds(time: str) -> float:
    return datetime.fromisoformat(time).timestamp()
