"""The audit trail, read through the server: in order, in pages, by filters, by those who may, whatever lies there."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from lakepact.access import Principal
from lakepact.catalog.audit import AuditReader, Position, Wanted, about
from lakepact.catalog.errors import BadRequest
from lakepact.catalog.trail import AUDIT, Entry, Outcome, file_name, place_of, span_of
from lakepact.errors import StoreUnavailable
from lakepact.kernel.ports import BlobEntry
from lakepact.runtime import AsyncioTasks, SystemClock
from lakepact.stores.memory import MemoryBlobs
from lakepact.upkeep.audit import AuditTrail
from tests.wire.people import PEOPLE, House, Person, house, on_namespace, on_table
from tests.wire.world import SCHEMA, Json, new_key, set_properties, table_path

NOON = 1_790_000_000_000
DAY = 86_400_000


@pytest.fixture
def people(tmp_path: Path) -> AbstractAsyncContextManager[House]:
    return _furnished(tmp_path)


@asynccontextmanager
async def _furnished(folder: Path) -> AsyncIterator[House]:
    async with house(folder) as people:
        await people.root.namespace()
        await people.root.table()
        yield people


async def trail(person: Person, **asked: Any) -> Json:
    answer = await person.get(f"/audit?{urlencode(asked)}")
    assert answer.status == 200, answer.body
    page: Json = answer.json()
    return page


async def told(person: Person, **asked: Any) -> list[tuple[str, str, str]]:
    lines = (await trail(person, **asked))["lines"]
    return [(one["principal"], one["operation"], one["outcome"]) for one in lines]


# --- through the server ---


async def test_the_newest_line_comes_first_and_nothing_waits_to_be_written(people: House) -> None:
    root, eve = people.root, people.eve
    await root.grant("user:eve", "write", **on_table())
    await eve.commit([set_properties(a="b")], key=(key := new_key()))
    await eve.delete(table_path())
    page = await trail(root)
    assert (page["damaged"], page["next-page-token"]) == (0, None)
    assert [(one["principal"], one["operation"], one["outcome"]) for one in page["lines"]] == [
        ("eve", "dropTable", "denied"),
        ("eve", "updateTable", "applied"),
        ("root", "addGrant", "applied"),
        ("root", "createTable", "applied"),
        ("root", "createNamespace", "applied"),
    ]
    assert page["lines"][1]["transaction-id"] == key
    assert "manage" in page["lines"][0]["reason"]


async def test_statements_are_staged_under_their_transaction_and_its_end_says_what_became_of_them(
    people: House,
) -> None:
    root, eve = people.root, people.eve
    await root.grant("user:eve", "create", **on_namespace())
    await root.table("u")
    ids = []
    for end in ("abort", "commit"):
        begun = (await eve.post("/transactions")).json()
        ids.append(begun["transaction-id"])
        inside = eve.at(begun["prefix"])
        assert (await inside.commit([set_properties(a=end)], key=(key := new_key()))).status == 200
        assert (await inside.post("/namespaces/db/tables", {"name": f"new_{end}", "schema": SCHEMA})).status == 200
        assert (await inside.delete(table_path("u"))).status == 403
        assert (await people.bob.at(begun["prefix"]).commit([set_properties(a="mine")])).status == 403
        assert (await eve.post(f"/transactions/{ids[-1]}/{end}")).status == 200
    lines = [one for one in (await trail(root))["lines"] if one["transaction-id"] in ids]
    assert [(one["principal"], one["operation"], one["outcome"], one["tables"]) for one in lines] == [
        ("eve", "publishTransaction", "applied", ["db.new_commit", "db.t"]),
        ("bob", "updateTable", "denied", ["db.t"]),
        ("eve", "dropTable", "denied", ["db.u"]),
        ("eve", "createTable", "staged", []),
        ("eve", "updateTable", "staged", ["db.t"]),
        ("eve", "beginTransaction", "applied", []),
        ("eve", "abortTransaction", "applied", []),
        ("bob", "updateTable", "denied", ["db.t"]),
        ("eve", "dropTable", "denied", ["db.u"]),
        ("eve", "createTable", "staged", []),
        ("eve", "updateTable", "staged", ["db.t"]),
        ("eve", "beginTransaction", "applied", []),
    ]
    assert lines[4]["detail"] == {"key": key}
    assert await told(root, operation="publishTransaction", table="db.t") == [("eve", "publishTransaction", "applied")]
    assert await told(root, outcome="staged", table="db.new_abort") == [("eve", "createTable", "staged")]


async def test_an_operation_that_there_is_not_is_told(people: House) -> None:
    answer = await people.root.get("/audit?operation=dropTabel")
    assert answer.status == 400 and "did you mean dropTable?" in answer.json()["error"]["message"]
    assert "docs/access.md" in (await people.root.get("/audit?operation=zzz")).json()["error"]["message"]
    assert await told(people.root, operation="createToken") == []


async def test_a_line_is_about_what_was_made(people: House) -> None:
    await people.root.post("/namespaces", {"namespace": ["db", "eu"]})
    [line, *_] = (await trail(people.root))["lines"]
    assert about(line) == "db.eu"


async def test_pages_hold_every_line_once_in_the_order_of_time(people: House) -> None:
    for number in range(7):
        await people.root.commit([set_properties(a=str(number))])
    whole = (await trail(people.root))["lines"]
    found: list[Json] = []
    token: str | None = ""
    for _ in range(3):
        page = await trail(people.root, limit=3, before=token)
        found += page["lines"]
        token = page["next-page-token"]
    assert found == whole
    assert token is None
    last = whole[-1]["at-ms"]
    assert (await trail(people.root, before=last))["lines"] == []


async def test_lines_are_found_by_who_what_and_what_came_of_it(people: House) -> None:
    root, eve = people.root, people.eve
    await root.grant("user:eve", "read", **on_table())
    await eve.commit([set_properties(a="b")])
    await eve.delete(table_path())
    await root.commit([], [{"type": "assert-table-uuid", "uuid": new_key()}])
    assert await told(root, principal="eve") == [("eve", "dropTable", "denied"), ("eve", "updateTable", "denied")]
    assert await told(root, operation="updateTable") == [
        ("root", "updateTable", "refused"),
        ("eve", "updateTable", "denied"),
    ]
    assert await told(root, principal="eve", operation="dropTable", outcome="denied") == [
        ("eve", "dropTable", "denied")
    ]
    assert await told(root, outcome="unknown") == []
    # A form that was left empty asks for nothing.
    assert len(await told(root, principal="", operation="", outcome="", table="", before="")) == 6
    for wrong in ({"outcome": "good"}, {"before": "yesterday"}, {"before": "2026-13-01"}, {"limit": "-1"}):
        assert (await root.get(f"/audit?{urlencode(wrong)}")).status == 400, wrong
    assert (await root.at(f"main@{new_key()}").get("/audit")).status == 400


async def test_a_table_is_found_from_its_creation_to_its_end_whatever_the_line_calls_it(people: House) -> None:
    root = people.root
    created = {"identifier": {"namespace": ["db"], "name": "born"}, "requirements": [{"type": "assert-create"}]}
    await root.post("/transactions/commit", {"table-changes": [{**created, "updates": []}]})
    rename = {"source": {"namespace": ["db"], "name": "t"}, "destination": {"namespace": ["db"], "name": "u"}}
    await root.post("/tables/rename", rename)
    await root.grant("user:eve", "read", **on_table("u"))
    await root.delete(table_path("u"))
    await root.post("/tables/undrop", {"identifier": {"namespace": ["db"], "name": "u"}})
    assert [one[1] for one in await told(root, table="db.t")] == ["renameTable", "createTable"]
    assert [one[1] for one in await told(root, table="db.u")] == ["undropTable", "dropTable", "addGrant", "renameTable"]
    assert [one[1] for one in await told(root, table="db.born")] == ["commitTransaction"]
    assert await told(root, table="db") == []


async def test_it_is_for_those_who_manage_the_warehouse(people: House) -> None:
    root, eve, mallory = people.root, people.eve, people.mallory
    assert (await eve.get("/audit")).status == 403
    await root.grant("user:eve", "manage", **on_namespace())
    await root.grant("user:eve", "create")
    refused = await eve.get("/audit")
    assert refused.refusal == (403, "ForbiddenException")
    assert "manage on warehouse" in refused.error["message"]
    await root.grant("user:eve", "manage")
    assert len(await told(eve)) == 5
    # The warehouse of another account is not there.
    assert (await mallory.at("main").get("/audit")).status == 404
    assert await told(mallory) == []


async def test_reading_the_trail_is_a_read_and_is_told_where_these_are(tmp_path: Path) -> None:
    async with house(tmp_path, audit="all") as people:
        assert await told(people.root) == []
        assert await told(people.root) == [("root", "listAudit", "applied")]


async def test_it_is_offered_in_the_configuration(people: House) -> None:
    served = (await people.root.client.send("GET", "/v1/config")).json()["endpoints"]
    assert "GET /v1/{prefix}/audit" in served


async def test_a_damaged_line_is_counted_once_and_the_others_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One file holds the lines of a minute of one day.
    now_ms = SystemClock().now_ms()
    moments = count(min(now_ms, (now_ms // DAY + 1) * DAY - 1_000))
    monkeypatch.setattr(SystemClock, "now_ms", lambda _: next(moments))
    async with _furnished(tmp_path) as people:
        root = people.root
        await root.commit([set_properties(a="b")])
        whole = (await trail(root))["lines"]
        [file] = root.path_of(f"{root.root}/{AUDIT}").rglob("*.jsonl")
        lines = file.read_text().splitlines()
        elsewhen = json.dumps({**json.loads(lines[0]), "at-ms": 1})
        wrong = ["{", "[]", "", elsewhen, lines[1].replace('"tables":[]', '"tables":[7]'), "\x00"]
        file.write_text("\n".join([lines[0], *wrong, *lines[1:]]))
        (file.parent / "somebody-elses.jsonl").write_text("hello")
        page = await trail(root)
        assert page == {"lines": whole, "damaged": len(wrong), "next-page-token": None}
        found, damaged = list[Json](), 0
        token: str | None = ""
        while token is not None:
            page = await trail(root, limit=1, before=token)
            found, damaged, token = found + page["lines"], damaged + page["damaged"], page["next-page-token"]
        assert (found, damaged) == (whole, len(wrong))


async def test_a_server_that_asks_nobody_for_a_name_shows_what_was_written_when_it_did(tmp_path: Path) -> None:
    async with house(tmp_path) as people:
        await people.root.namespace()
    nobody = Principal(None, admin=True)

    async def anybody(*asked: object) -> Principal:
        return nobody

    async with house(tmp_path, admit=anybody) as people:
        assert await told(people.root) == [("root", "createNamespace", "applied")]


# --- the files ---


class Counting(MemoryBlobs):
    """Counts what is asked of it."""

    def __init__(self) -> None:
        super().__init__()
        self.read: list[str] = []
        self.listed = 0

    async def get(self, name: str) -> bytes | None:
        self.read.append(name)
        return await super().get(name)

    async def list(self, prefix: str, after: str | None = None, limit: int = 1_000) -> Sequence[BlobEntry]:
        self.listed += 1
        return await super().list(prefix, after, limit)


class Forgetful(MemoryBlobs):
    """Takes everything, and may not say so."""

    answers = True

    async def put(self, name: str, data: bytes) -> bool:
        done = await super().put(name, data)
        if not self.answers:
            raise StoreUnavailable("the answer was lost")
        return done


def entry(at_ms: int, operation: str = "updateTable", principal: str = "eve") -> Entry:
    return Entry(at_ms, "default", principal, operation, Outcome.APPLIED)


def written_by(blobs: MemoryBlobs, process: str) -> AuditTrail:
    return AuditTrail({"main": blobs}, SystemClock(), process=process, interval_s=60.0)


async def pages(blobs: MemoryBlobs, wanted: Wanted | None = None, limit: int = 10) -> list[list[int]]:
    """The moments of all lines, page by page."""
    found: list[list[int]] = []
    before: Position | None = None
    while True:
        page = await AuditReader(blobs, AsyncioTasks(), NOON + DAY).page(before, wanted or Wanted(), limit)
        found.append([line["at-ms"] for line in page.lines])
        if page.following is None:
            return found
        assert before is None or page.following < before
        before = Position.parse(page.following.token)
        assert before == page.following


def test_the_name_of_a_file_says_which_time_it_is_of() -> None:
    name = file_name(NOON - 4_321, NOON, "host.example-17-0badcafe", 1)
    assert name == f"{AUDIT}/2026-09-21/141320000-04321-host.example-17-0badcafe-000001.jsonl"
    assert span_of(name) == (NOON - 4_321, NOON)
    assert place_of(NOON) < name < place_of(NOON + 1)
    for other in ("x", f"{AUDIT}/2026-09-21/host-17.jsonl", name.replace("141320", "251320"), f"{name}.tmp"):
        assert span_of(other) is None


async def test_a_file_is_of_a_minute_of_one_day_however_long_it_has_waited() -> None:
    blobs = MemoryBlobs()
    audit = written_by(blobs, "p")
    midnight = NOON // DAY * DAY
    for at_ms in (midnight - 90_000, midnight - 40_000, midnight - 1, midnight, midnight - 5, midnight + 60_000):
        audit.note("main", entry(at_ms))
    await audit.flush("main")
    spans = [span_of(one.name) for one in await blobs.list("")]
    assert sorted(one for one in spans if one is not None) == [
        (midnight - 90_000, midnight - 40_000),
        (midnight - 5, midnight - 5),
        (midnight - 1, midnight - 1),
        (midnight, midnight),
        (midnight + 60_000, midnight + 60_000),
    ]


async def test_a_file_has_a_size() -> None:
    blobs = MemoryBlobs()
    audit = written_by(blobs, "p")
    for number in range(3):
        audit.note("main", entry(NOON + number, operation="x" * 700_000))
    await audit.flush("main")
    assert [one.size // 1_000_000 for one in await blobs.list("")] == [1, 0]


async def test_lines_of_several_processes_come_in_the_order_of_time() -> None:
    blobs = MemoryBlobs()
    processes = [written_by(blobs, name) for name in ("a", "b", "c")]
    moments = [NOON + 37 * number for number in range(300)]
    for number, at_ms in enumerate(moments):
        processes[number * number % 3].note("main", entry(at_ms))
        if number % 50 == 17:
            await processes[number % 3].flush("main")
    for one in processes:
        await one.flush("main")
    for limit in (1, 7, 299, 300, 1_000):
        found = await pages(blobs, limit=limit)
        assert [at_ms for page in found for at_ms in page] == moments[::-1]
        assert len(found) == -(-len(moments) // limit)


async def test_lines_of_one_moment_are_parted_by_pages_and_one_that_was_written_twice_is_one() -> None:
    blobs = Forgetful()
    for process in ("a", "b"):
        audit = written_by(blobs, process)
        for number in (1, 2, 3, 3):
            audit.note("main", entry(NOON, f"operation{number}"))
        blobs.answers = False
        await audit.flush("main")
        blobs.answers = True
        audit.note("main", entry(NOON, "later"))
        await audit.flush("main")
    assert len(await blobs.list("")) == 4
    for limit in (1, 2, 3, 9, 10):
        assert sum(map(len, await pages(blobs, limit=limit))) == 10


async def test_a_page_looks_at_a_few_files_of_very_many() -> None:
    blobs = Counting()
    audit = written_by(blobs, "p")
    for number in range(6_000):
        audit.note("main", entry(NOON - number * 5_000, principal="eve" if number % 3_000 else "ann"))
        if number % 2:
            await audit.flush("main")
    blobs.listed = 0
    reader = AuditReader(blobs, AsyncioTasks(), NOON)
    assert len((await reader.page(None, Wanted(), 10)).lines) == 10
    assert len(blobs.read) <= 32
    assert blobs.listed <= 4
    blobs.read.clear()
    # In the middle of them it costs the same.
    middle = Position(NOON - 10_000_000)
    assert (await AuditReader(blobs, AsyncioTasks(), NOON).page(middle, Wanted(), 1)).lines[0]["at-ms"] < middle.at_ms
    assert len(blobs.read) <= 32
    blobs.read.clear()
    # What is rare is looked for in bounded steps, and each says where the next one begins.
    first = await AuditReader(blobs, AsyncioTasks(), NOON).page(None, Wanted(principal="ann"), 10)
    assert len(first.lines) == 1
    assert first.following is not None
    assert len(blobs.read) < 300
    assert [len(page) for page in await pages(blobs, Wanted(principal="ann"))].count(1) == 2


async def test_a_quiet_trail_is_found_however_long_ago_it_was() -> None:
    blobs = Counting()
    audit = written_by(blobs, "p")
    for years in (40, 3, 1):
        audit.note("main", entry(NOON - years * 365 * DAY))
        await audit.flush("main")
    assert await pages(blobs) == [[NOON - years * 365 * DAY for years in (1, 3, 40)]]
    assert blobs.listed < 12
    assert await pages(MemoryBlobs()) == [[]]


async def test_very_many_files_across_one_moment_stop_nobody() -> None:
    blobs = MemoryBlobs()
    for number in range(1_200):
        audit = written_by(blobs, f"p-{number}")
        audit.note("main", entry(NOON - 1_000 - number % 7))
        audit.note("main", entry(NOON + number % 5))
        await audit.flush("main")
    found = [at_ms for page in await pages(blobs, limit=500) for at_ms in page]
    assert len(found) == 2_400
    assert found == sorted(found, reverse=True)


def test_a_moment_is_written_as_people_do() -> None:
    for text in ("2026-09-21T14:13:20Z", "2026-09-21 14:13:20", "2026-09-21T16:13:20+02:00", str(NOON), f"{NOON}.0."):
        assert Position.parse(text) == Position(NOON)
    assert Position.parse("20260921") == Position.parse("2026-09-21")
    assert Position.parse(f"{NOON}.3.host-1.jsonl") == Position(NOON, "host-1.jsonl", 3)
    for wrong in ("now", "٣.٣.x", "1.2", "12", "", f"{NOON}.0.a/b", "0000-01-01", "9" * 20):
        with pytest.raises(BadRequest):
            Position.parse(wrong)


# --- who may ---


async def test_t_audit_3_the_trail_tells_of_tokens_only_to_administrators(people: House) -> None:
    root, eve = people.root, people.eve
    await root.grant("user:eve", "manage")
    assert root.service is not None
    made = Entry(SystemClock().now_ms(), "default", "root", "createToken", Outcome.APPLIED, detail={"name": "loader"})
    root.service.trail.note("main", made)
    assert ("root", "createToken", "applied") in await told(root)
    assert await told(root, operation="createToken") == [("root", "createToken", "applied")]
    assert ("root", "createToken", "applied") not in await told(eve)
    assert await told(eve, operation="createToken") == []
    assert not PEOPLE["eve"].admin
