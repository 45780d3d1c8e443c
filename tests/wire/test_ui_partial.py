"""Pages for somebody who may read a part of a warehouse: that part, and not a byte that tells of the rest.

Ann may write in `db` and below, and read `half.plain`, `half.d` (Delta) and the namespace `outer.inner`. Everything
else has a name that begins with `zz`, so that it is easy to look for, and was changed in every way that leaves a trace.

One file, as every page is looked at with the same eyes.
"""

from __future__ import annotations

import html
import re
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, unquote_plus

import pytest

from lakepact.access import Scope
from lakepact.catalog.work import Call
from tests.support.asgi_client import Answer
from tests.support.pages import Html
from tests.support.showcase import DELTA_SCHEMA
from tests.support.waiting import wait_until_async
from tests.wire.people import House, Person, house, on_namespace, on_table
from tests.wire.test_rights_rounds import Calls
from tests.wire.uis import guarded, many_tables
from tests.wire.world import Json, append, change, new_key, set_properties, table_path

SECRET = "zz"
QUERIES = ("", "z", "e", ".", "plain", "db")


@dataclass(slots=True)
class Scene:
    people: House
    ids: dict[str, str] = field(default_factory=dict)
    """Transactions and tables that a test looks for, by a word for each."""

    async def look(self, path: str, status: int = 200, who: str = "ann") -> Html:
        answer = await self.get(path, who)
        assert answer.status == status, (path, answer.status, answer.body[-1_500:])
        return guarded(answer)

    async def get(self, path: str, who: str = "ann") -> Answer:
        return await self.people.root.client.send("GET", path, headers={"X-Test-User": who})


@pytest.fixture
def scene(tmp_path: Path) -> AbstractAsyncContextManager[Scene]:
    return furnished(tmp_path)


@asynccontextmanager
async def furnished(folder: Path, *, hidden: bool = True) -> AsyncIterator[Scene]:
    async with house(folder) as people:
        scene = Scene(people)
        root = people.root
        for levels in (("db",), ("db", "deep"), ("half",), ("outer",), ("outer", "inner")):
            await root.namespace(*levels)
        for name, *namespace in (
            ("t",),
            ("raw",),
            ("p",),
            ("x", "db", "deep"),
            ("plain", "half"),
            ("y", "outer", "inner"),
        ):
            await root.table(name, *namespace)
        await delta(root, "d")
        await root.view("v")
        for on in (on_table("plain", "half"), on_table("d", "half"), on_namespace("outer", "inner")):
            assert (await root.grant("user:ann", "read", **on)).status == 200
        assert (await root.grant("user:ann", "write", **on_namespace())).status == 200
        if hidden:
            await hide(scene)
        await own(scene)
        yield scene
        if hidden:
            # What was left open would only be in the way of the check of everything.
            for one in ("open", "holder"):
                await root.post(f"/transactions/{scene.ids[one]}/abort")


async def delta(root: Person, name: str) -> None:
    body = {"name": name, "schema": DELTA_SCHEMA, "mirrors": ["delta_log"]}
    assert (await root.post("/namespaces/half/delta-tables", body)).status == 200


async def hide(scene: Scene) -> None:
    """Everything that Ann must not learn of."""
    root, ids = scene.people.root, scene.ids
    for levels in (("zzvault",), ("zzvault", "zzdeep"), ("outer", "zzkid"), ("half", "zzhalf")):
        await root.namespace(*levels)
    for name, *namespace in (("zzx", "zzvault"), ("zzmix", "half"), ("zzout", "outer"), ("zzold", "zzvault")):
        # Where a table lies the API tells too, and it stays there when it is renamed.
        where = {"location": f"{root.root}/moved"} if name == "zzold" else {}
        ids[name] = (await root.table(name, *namespace, **where))["metadata"]["table-uuid"]
    await delta(root, "zzdelta")
    # Moved together: with something in sight, and without.
    ids["together"], ids["apart"], ids["refused"] = new_key(), new_key(), new_key()
    changes = [("t", "db"), ("plain", "half"), ("zzx", "zzvault"), ("zzmix", "half")]
    moved = [change(name, append(number), namespace=space) for number, (name, space) in enumerate(changes, 1)]
    assert (await root.commit_all(*moved, key=ids["together"])).status == 204
    assert (await root.commit_all(change("zzx", append(5, 2), namespace="zzvault"), key=ids["apart"])).status == 204
    late = [{"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 4711}]
    refused = await root.commit_all(
        change("zzx", [], late, "zzvault"), change("t", [set_properties(x="1")]), key=ids["refused"]
    )
    assert refused.status == 409
    # Into sight, out of sight, and gone.
    for source, target in ((("zzvault", "zzold"), ("db", "came")), (("db", "raw"), ("zzvault", "zzraw"))):
        names = [{"namespace": [space], "name": name} for space, name in (source, target)]
        assert (await root.post("/tables/rename", {"source": names[0], "destination": names[1]})).status == 204
    await root.table("zzgone", "zzvault")
    assert (await root.delete("/namespaces/zzvault/tables/zzgone")).status == 204
    said = {"owner": "zzowner", "description": "zzwords", "tags": {}}
    assert (await root.put(f"{table_path('zzmix', 'half')}/governance", said)).status == 200
    # Under way, not committed, one of them holding what Ann sees.
    for one, name, space, number in (("open", "zzmix", "half", 7), ("holder", "t", "db", 8)):
        ids[one] = (await root.post("/transactions", {"properties": {"team": "zzteam"}})).json()["transaction-id"]
        inside = root.at(f"main@{ids[one]}")
        body = {"requirements": [], "updates": append(number, 3, **({"parent": 1} if name == "t" else {}))}
        assert (await inside.post(table_path(name, space), body)).status == 200
    ids["run"] = await run(scene, "run", "committed")
    ids["failed"] = await run(scene, "zzfailed", "failed")
    ids["elsewhere"] = await run(scene, "zzelsewhere", "committed", tables=("zzvault.zzx",))


def report(name: str, state: str, tables: tuple[str, ...]) -> Json:
    inputs = [
        {"table": "zzvault.zzx", "snapshot-id": "991", "used-by": ["zzview", "db.p"]},
        {"table": "half.plain", "snapshot-id": "992", "used-by": ["zzview", "db.p"]},
        {"table": "db.t", "snapshot-id": "993", "used-by": ["half.zzmix"]},
    ]
    stages: list[Json] = [
        {"name": "zzview", "target": None, "reads": ["zzvault.zzx", "half.plain"], "state": "done", "seconds": 1.0}
    ]
    stages += [
        {"name": one, "target": one, "reads": ["zzview"], "state": "done", "seconds": 2.0, "rows": 5} for one in tables
    ]
    checks = [
        {"table": one, "name": "known", "status": "warned", "rows": 5, "violations": 1, "message": "zzmessage"}
        | {"sample": ['{"zzrow": 1}']}
        for one in (*tables, "zzvault.zzx")
    ]
    return {
        "pipeline": "shop" if "zz" not in name else "zzshop",
        "run-id": name,
        "state": state,
        "seconds": 3.0,
        "stages": stages,
        "checks": checks,
        "inputs": inputs,
        "zzmore": "zzmore",
        "error": {"type": "zztype", "message": "zzerror"} if state == "failed" else None,
    }


async def run(scene: Scene, name: str, state: str, tables: tuple[str, ...] = ("db.p", "half.zzmix")) -> str:
    """A run of a pipeline of root's, with its commit and its report."""
    root = scene.people.root
    told = report(name, state, tables)
    properties = {"pipeline": told["pipeline"], "run-id": name, "team": "zzteam"}
    id = str((await root.post("/transactions", {"properties": properties})).json()["transaction-id"])
    inside = root.at(f"main@{id}")
    for one in told["inputs"]:
        space, _, table = one["table"].partition(".")
        assert (await inside.get(table_path(table, space))).status == 200
    for number, one in enumerate(tables):
        space, _, table = one.partition(".")
        body = {"requirements": [], "updates": [set_properties(by=f"{name}{number}")]}
        assert (await inside.post(table_path(table, space), body)).status == 200
    source = {"kind": "pipeline", "pipeline": told["pipeline"], "run-id": name, "quality": "passed"}
    source |= {"note": "zznote", "stages": list(tables), "checks": told["checks"], "inputs": told["inputs"]}
    end, last = ("commit", {"source": source}) if state == "committed" else ("abort", {})
    assert (await root.post(f"/transactions/{id}/{end}", last)).status == 200
    assert (await root.put(f"/transactions/{id}/report", told)).status == 204
    return id


async def own(scene: Scene) -> None:
    """What Ann does herself."""
    ann, ids = scene.people.ann, scene.ids
    for one in ("mine", "my run"):
        properties = {"pipeline": "anns", "run-id": "hers"} if one == "my run" else {}
        ids[one] = (await ann.post("/transactions", {"properties": properties})).json()["transaction-id"]
    inside = ann.at(f"main@{ids['mine']}")
    assert (await inside.post(table_path("t"), {"requirements": [], "updates": [set_properties(y="2")]})).status == 200
    check = {"name": "known", "status": "failed", "violations": 1, "sample": ["{}"]}
    told: Json = {
        "pipeline": "anns",
        "run-id": "hers",
        "state": "failed",
        "principal": "root",
        "stages": [
            {"name": "her view", "target": None, "reads": ["zzvault.zzx", "half.plain"]},
            *({"name": one, "target": one, "reads": ["her view"]} for one in ("db.p", "db.new", "zzvault.zzx")),
        ],
        "checks": [{**check, "table": "db.p"}, {**check, "table": "zzvault.zzx"}],
        "inputs": [{"table": "zzvault.zzx", "used-by": ["her view"]}],
        "error": {"type": "E", "message": "her error"},
    }
    assert (await ann.post(f"/transactions/{ids['my run']}/abort")).status == 200
    assert (await ann.put(f"/transactions/{ids['my run']}/report", told)).status == 204


async def receipts_are_there(scene: Scene) -> None:
    """Wait for the receipts that tests look at: they are written after the response, and in any order."""

    async def written() -> bool:
        run = await scene.look("/ui/catalog/main/db/p/timeline", who="root")
        together = await scene.look("/ui/catalog/main/half/plain/timeline", who="root")
        return (
            "hers" in (await scene.look("/ui/pipelines/main")).text
            and any(href.startswith("/ui/pipelines/main/") for href, _ in run.links)
            and "together with 3 others" in together.text
        )

    await wait_until_async(written, "the receipts were never written")


def shown_in(body: bytes) -> str:
    """A page with everything undone that could hide a name."""
    return unquote_plus(unquote(html.unescape(body.decode()))).casefold()


async def crawl(scene: Scene, who: str, *starts: str) -> dict[str, Answer]:
    """Every page that can be reached from these, by links and by the search."""
    found: dict[str, Answer] = {}
    ahead = ["/ui", *(f"/ui/search?q={quote(one)}" for one in QUERIES), *starts]
    while ahead:
        path = ahead.pop().partition("#")[0]
        if path in found or not path.startswith("/ui") or path.startswith("/ui/static"):
            continue
        found[path] = await scene.get(path, who)
        if (found[path].header("content-type") or "").startswith("text/html"):
            ahead += [href for href, _ in guarded(found[path]).links]
    return found


async def test_t_right_13_no_byte_of_any_page_tells_of_what_may_not_be_seen(scene: Scene) -> None:
    await receipts_are_there(scene)
    everything = await crawl(scene, "root")
    assert sum(SECRET in shown_in(answer.body) for answer in everything.values()) > 30
    # By her own links, and by every address that others could send her.
    pages = await crawl(scene, "ann", *everything)
    reached = await crawl(scene, "ann")
    assert len(reached) > 40
    assert {path for path, answer in reached.items() if answer.status != 200} == set()
    of_hers = {scene.ids[one] for one in ("mine", "my run", "together", "run")}
    strange = {id for one, id in scene.ids.items() if id not in of_hers and one != "zzold"}
    for path, answer in pages.items():
        if SECRET in unquote_plus(path):
            # An answer may repeat what was asked for, and nothing else: see the next test.
            continue
        told = shown_in(answer.body)
        at = told.find(SECRET)
        assert at < 0, (path, told[max(at - 200, 0) : at + 100])
        assert path.rpartition("/")[2] in strange or not [id for id in strange if id in told], path


async def test_what_may_not_be_seen_is_answered_as_what_is_not_there(scene: Scene) -> None:
    ids = scene.ids
    table, gone = "/ui/catalog/main/{}/{}", new_key()
    pairs = [
        ("/ui/catalog/main/zzvault", "/ui/catalog/main/zzabsen"),
        ("/ui/catalog/main/zzvault%1Fzzdeep", "/ui/catalog/main/zzabsen%1Fzzdeep"),
        ("/ui/catalog/main/outer%1Fzzkid", "/ui/catalog/main/outer%1Fzzkad"),
        *(
            (f"/ui/transactions/main/{ids[one]}", f"/ui/transactions/main/{gone}")
            for one in ("apart", "refused", "open")
        ),
        *((f"/ui/pipelines/main/{ids[one]}", f"/ui/pipelines/main/{gone}") for one in ("failed", "elsewhere", "open")),
        ("/ui/search?q=zzvault", "/ui/search?q=zzabsen"),
        ("/ui/pipelines/main?pipeline=zzshop", "/ui/pipelines/main?pipeline=zzship"),
    ]
    for tab in ("", "/timeline", "/snapshots", "/lineage"):
        for (space, hidden), (other, absent) in (
            (("zzvault", "zzx"), ("zzvault", "zzq")),
            (("zzvault", "zzx"), ("zzabsen", "zzx")),
            (("half", "zzmix"), ("half", "zzmax")),
            (("half", "zzdelta"), ("half", "zzdalta")),
            (("outer", "zzout"), ("outer", "zzaut")),
            (("db", "raw"), ("db", "row")),
        ):
            pairs.append((table.format(space, hidden) + tab, table.format(other, absent) + tab))
    for hidden, absent in pairs:
        answers = [await scene.get(one) for one in (hidden, absent)]
        words = [re.split(r"[/?=]|%1F", one) for one in (hidden, absent)]
        bodies = [answer.body.decode() for answer in answers]
        for ours, theirs in zip(*words, strict=True):
            if ours != theirs:
                bodies = [bodies[0].replace(ours, "…"), bodies[1].replace(theirs, "…")]
        status = 200 if "?" in hidden else 404
        assert [answer.status for answer in answers] == [status, status], hidden
        assert bodies[0] == bodies[1], hidden


async def test_lists_are_as_if_there_were_nothing_else(tmp_path: Path) -> None:
    pages = ("/ui/catalog/main", "/ui/catalog/main/half", "/ui/catalog/main/outer", "/ui/search?q=", "/ui/search?q=a")
    seen: list[list[str]] = []
    for hidden in (True, False):
        async with furnished(tmp_path / str(hidden), hidden=hidden) as scene:
            if not hidden:
                # One of them came into her sight, another one went.
                await scene.people.root.table("came", "db")
                assert (await scene.people.root.delete("/namespaces/db/tables/raw")).status == 204
            seen.append([_without_figures((await scene.look(page)).text) for page in pages])
    assert seen[0] == seen[1]


def _without_figures(text: str) -> str:
    """Without what differs from one time to another: versions, ages and the folder of the warehouse."""
    return re.sub(r"\b(\d+ \w+ ago|just now|\d+|file://\S*/warehouse)\b", "…", text)


async def test_the_tree_leads_to_what_may_be_seen(scene: Scene) -> None:
    page = await scene.look("/ui/catalog/main")
    assert {"db", "half", "outer"} <= {text for _, text in page.links}
    for path, names in (
        ("/ui/catalog/main/half", {"plain", "d"}),
        ("/ui/catalog/main/db", {"deep", "t", "p", "came", "v"}),
        ("/ui/catalog/main/outer", {"inner"}),
        ("/ui/catalog/main/outer%1Finner", {"y"}),
        ("/ui/catalog/main/half/plain", {"plain", "d", "Timeline"}),
    ):
        assert names <= {text for _, text in (await scene.look(path)).links}, path
    found = await scene.look("/ui/search?q=half")
    assert {"half", "half.plain", "half.d"} <= {text for _, text in found.links}
    assert "db.deep.x" in {text for _, text in (await scene.look("/ui/search?q=deep")).links}


async def test_a_right_that_comes_or_goes_counts_for_the_next_page(scene: Scene) -> None:
    root, path = scene.people.root, "/ui/catalog/main/half/zzmix"
    await scene.look("/ui/catalog/main/half/plain")
    await scene.look(path, 404)
    assert (await root.grant("user:ann", "read", **on_table("zzmix", "half"))).status == 200
    await scene.look(path)
    assert "zzmix" in (await scene.look("/ui/catalog/main/half/plain")).text
    assert (await root.revoke("user:ann", **on_table("zzmix", "half"))).status == 200
    await scene.look(path, 404)
    assert "zzmix" not in (await scene.look("/ui/catalog/main/half/plain")).text


async def test_of_a_commit_the_tables_in_sight_are_shown_and_no_number_of_the_others(scene: Scene) -> None:
    page = await scene.look(f"/ui/transactions/main/{scene.ids['together']}")
    assert "2 moved together" in page.text and "db.t" in page.text and "half.plain" in page.text
    assert "4 moved together" in (await scene.look(f"/ui/transactions/main/{scene.ids['together']}", who="root")).text
    listed = await scene.look("/ui/transactions/main")
    assert scene.ids["together"] in str(listed.links) and scene.ids["apart"] not in str(listed.links)
    await receipts_are_there(scene)
    for tab in ("", "/timeline"):
        timeline = await scene.look(f"/ui/catalog/main/half/plain{tab}")
        assert scene.ids["together"] in str(timeline.links) and "together with" not in timeline.text
        assert "together with 3 others" in (await scene.look(f"/ui/catalog/main/half/plain{tab}", who="root")).text


async def test_a_table_that_came_from_elsewhere_goes_by_its_own_name_in_old_commits(scene: Scene) -> None:
    listed = await scene.look("/ui/transactions/main")
    assert listed.text.count("db.came") >= 2, "made, and renamed"
    # What went out of sight is gone from there too.
    assert "db.raw" not in listed.text


async def test_ones_own_transactions_can_be_looked_at_renewed_and_aborted(scene: Scene) -> None:
    path = f"/ui/transactions/main/{scene.ids['mine']}"
    page = await scene.look(path)
    assert "db.t" in page.text and [one.action for one in page.forms if one.method == "post"]
    assert scene.ids["mine"] in str((await scene.look("/ui/transactions/main")).links)
    headers = {"X-Test-User": "ann", "content-type": "application/x-www-form-urlencoded"}
    client = scene.people.ann.client
    assert (await client.send("POST", f"{path}/renew", body=b"seconds=600", headers=headers)).status == 303
    assert (await client.send("POST", f"{path}/abort", headers=headers)).status == 303
    for one in ("open", "holder"):
        for step in ("abort", "renew"):
            other = f"/ui/transactions/main/{scene.ids[one]}/{step}"
            assert (await client.send("POST", other, body=b"seconds=600", headers=headers)).status == 404


async def test_of_a_run_of_others_the_tables_in_sight_are_shown_without_rows(scene: Scene) -> None:
    await receipts_are_there(scene)
    listed = await scene.look("/ui/pipelines/main")
    page = await scene.look(listed.link("run"))
    assert "db.p" in page.text and "half.plain" in page.text and "known" in page.text and "1 check" in page.text
    # Of what it has read, what was made into something in sight, also through a view.
    assert "992" in page.text and not any(one in page.text for one in ("991", "993", "sample row"))
    assert "Stages 1" in page.text
    lineage = await scene.look("/ui/catalog/main/db/p/lineage")
    assert "/ui/catalog/main/half/plain/lineage" in {href for href, _ in lineage.links}
    timeline = await scene.look("/ui/catalog/main/db/p/timeline")
    assert "half.plain" in timeline.text and "1 check" in timeline.text and "verified" in timeline.text
    # Her own she sees whole, whoever she says that she is, as far as it is not hidden from her by now.
    mine = await scene.look(listed.link("hers"))
    assert all(word in mine.text for word in ("her error", "1 sample row", "her view", "db.new"))
    assert "1 check" in mine.text


async def test_the_server_and_its_mirrors_are_for_those_who_may_read_all_of_a_warehouse(scene: Scene) -> None:
    for path in ("/ui/server", "/ui/mirrors/main"):
        page = await scene.look(path, 403)
        assert "read on the warehouse" in page.text and "lakepact grants add user:ann read" in page.text
        await scene.look(path, who="root")
    home = await scene.look("/ui")
    assert not {"Mirrors", "Server"} & {text for _, text in home.links}
    assert "since start" not in home.text and "Commit rate" not in home.text and "Latest commits" in home.text
    assert {"Mirrors", "Server"} <= {text for _, text in (await scene.look("/ui", who="root")).links}


async def test_somebody_without_any_right_is_told_whom_to_ask(scene: Scene) -> None:
    for path in ("/ui", "/ui/catalog/main", "/ui/catalog/main/zzvault", "/ui/search?q=zz", "/ui/transactions/main"):
        page = await scene.look(path, 403, who="eve")
        assert "you may read nothing in warehouse main" in page.text and SECRET not in page.text


async def test_names_with_dots_do_not_open_what_looks_like_them(scene: Scene) -> None:
    """`db.zz` as one level is another namespace than `zz` in `db`, whatever a report writes."""
    root = scene.people.root
    await root.namespace("db.zzdot")
    await root.table("zzt", "db.zzdot")
    id = str((await root.post("/transactions", {})).json()["transaction-id"])
    changed = {"requirements": [], "updates": [set_properties(by="dotted")]}
    for one, space in (("p", "db"), ("zzt", "db.zzdot")):
        assert (await root.at(f"main@{id}").post(table_path(one, space), changed)).status == 200
    assert (await root.post(f"/transactions/{id}/commit", {})).status == 200
    told = report("dotted", "committed", ("db.p", "db.zzdot.zzt"))
    told["inputs"] += [{"table": "db.zzdot.zzt", "used-by": ["db.p"]}, {"table": "zzdot"}, {"table": ".zzdot."}]
    assert (await root.put(f"/transactions/{id}/report", {**told, "pipeline": "shop"})).status == 204
    assert "dotted" in (await scene.look("/ui/pipelines/main")).text
    for path in (f"/ui/pipelines/main/{id}", "/ui/catalog/main/db/p/lineage", "/ui/pipelines/main"):
        answer = await scene.get(path)
        assert answer.status == 200 and SECRET not in shown_in(answer.body), path


# --- many ---


async def test_what_pages_cost_grows_with_what_may_be_seen(tmp_path: Path) -> None:
    """Ten of two thousand tables: by namespace and one by one."""
    async with house(tmp_path) as people:
        root = people.root
        await root.namespace("few")
        for number in range(5):
            await root.table(f"f{number}", "few")
        await many_tables(people.settings, "many", 2_000)
        catalog = root.service.catalogs["main"] if root.service is not None else None
        assert catalog is not None
        things = [Scope.thing("tables", f"00000000-0000-4000-9000-{number * 400:012}") for number in range(5)]
        await catalog.give(Call(catalog.new_id(), "addGrant"), things, "user:ann")
        assert (await root.grant("user:ann", "read", **on_namespace("few"))).status == 200
        store: Any = catalog.parts.store
        calls = Calls(store)
        sizes: list[int] = []
        plain = store.scan

        async def scan(*given: Any, **more: Any) -> Any:
            page = await plain(*given, **more)
            sizes.append(len(page.cells))
            return page

        store.scan = scan
        for path, names in (
            ("/ui/catalog/main", 0),
            ("/ui/catalog/main/many", 5),
            ("/ui/catalog/main/few", 5),
            ("/ui/search?q=t0", 5),
            ("/ui/search?q=f", 5),
        ):
            calls.seen.clear()
            sizes.clear()
            answer = await people.ann.client.send("GET", path, headers={"X-Test-User": "ann"})
            assert answer.status == 200, answer.body
            found = {href for href, _ in guarded(answer).links if re.search(r"/catalog/main/\w+/\w+$", href)}
            assert len(found) == names, (path, found)
            assert len(calls.seen) <= 25 and sum(sizes) <= 60, (path, calls.seen, sizes)


@pytest.mark.parametrize("kind", ["sqlite", "file"])
async def test_searches_and_lists_go_on_page_by_page(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where every name is a document."""
    given = {"store": f"file://{tmp_path}/cells"} if kind == "file" else {}
    async with house(tmp_path, **given) as people:
        root, scene = people.root, Scene(people)
        await many_tables(people.settings, "many", 250)
        for levels in (("a",), ("a", "b"), ("c",), ("zz",)):
            await root.namespace(*levels)
        for name, *space in (("t1", "a"), ("t2", "a", "b"), ("t3", "c"), ("t4", "zz"), ("t5", "a", "b")):
            await root.table(name, *space)
        for granted in ("a", "c"):
            assert (await root.grant("user:ann", "read", **on_namespace(granted))).status == 200
        catalog = root.service.catalogs["main"] if root.service is not None else None
        assert catalog is not None
        things = [Scope.thing("tables", f"00000000-0000-4000-9000-{number:012}") for number in range(150)]
        await catalog.give(Call(catalog.new_id(), "addGrant"), things, "user:ann")
        first = await scene.look("/ui/catalog/main/many")
        second = await scene.look(first.link("Next page →"))
        listed = [[text for href, text in page.links if "/many/t" in href] for page in (first, second)]
        # In the tree beside them there are some of them on both.
        assert sorted({one for some in listed for one in some}) == [f"t{number:05}" for number in range(150)]
        monkeypatch.setattr("lakepact.server.ui.search._MOST_FOUND", 1)
        monkeypatch.setattr("lakepact.server.ui.search._SCAN", 1)
        seen: list[str] = []
        path = "/ui/search?q=.t"
        for _ in range(20):
            page = await scene.look(path)
            seen += [text for href, text in page.links if re.search(r"\.t\d", text)]
            path = next((href for href, text in page.links if text == "Next page →"), "")
            if not path:
                break
        assert {"a.t1", "a.b.t2", "a.b.t5", "c.t3"} <= set(seen) and len(seen) == len(set(seen)) == 154
