"""Credentials for storage over the wire: S3 behind a guard that enforces session policies, and nothing wider, ever.

One file, since all of it rests on one guarded S3, and what one way to get credentials refuses every other must too.
"""

from __future__ import annotations

import asyncio
import json
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import boto3
import orjson
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from lakepact.catalog.pointers import DIGEST
from lakepact.kernel.model import Transaction, Write
from lakepact.server import app
from lakepact.server.http import Request
from lakepact.server.vending import Outside, Right
from lakepact.server.vending.delegation import Delegation
from tests.support import s3_guarded
from tests.support.s3_guarded import REGION, ROLE, Guard
from tests.support.waiting import PATIENCE_S
from tests.wire.overlays import begin
from tests.wire.people import Person, house, on_namespace, on_table
from tests.wire.world import SCHEMA, VIEW_VERSION, Json, Wire, creation, new_key, segment, set_properties

VENDED: Final = {"X-Iceberg-Access-Delegation": "vended-credentials"}
SIGNING: Final = {"X-Iceberg-Access-Delegation": "remote-signing"}
T: Final = "/namespaces/db/tables/t"

Opened = Callable[..., AbstractAsyncContextManager[Wire]]


@pytest.fixture(scope="module")
def shared_guard() -> Iterator[Guard]:
    with s3_guarded.running() as guard:
        yield guard


@pytest.fixture
def guard(shared_guard: Guard, monkeypatch: pytest.MonkeyPatch) -> Iterator[Guard]:
    monkeypatch.setattr(app, "Outside", partial(Outside, timeout_s=PATIENCE_S))
    shared_guard.assumed.clear()
    shared_guard.sts_status = 200
    yield shared_guard
    shared_guard.sts_status = 200
    shared_guard.hold_sts.set()


@pytest.fixture
def opened(guard: Guard, tmp_path: Path) -> Opened:
    @asynccontextmanager
    async def open_(**credentials: Any) -> AsyncIterator[Wire]:
        given = {"role_arn": ROLE, "sts_endpoint": guard.url, "unsafe_sign_with_server_keys": True, **credentials}
        async with Wire.opened(
            tmp_path,
            warehouse=f"s3://{guard.bucket}/{tmp_path.name}",
            warehouse_options=guard.options(),
            warehouse_credentials=given,
        ) as wire:
            # It may have been opened before.
            await wire.post("/namespaces", {"namespace": ["db"]})
            yield wire

    return open_


@pytest.fixture
def lake(opened: Opened) -> AbstractAsyncContextManager[Wire]:
    return opened()


def client_of(guard: Guard, config: Json) -> Any:
    """S3 with these credentials alone."""
    return boto3.client(
        "s3",
        endpoint_url=guard.url,
        region_name=config["client.region"],
        aws_access_key_id=config["s3.access-key-id"],
        aws_secret_access_key=config["s3.secret-access-key"],
        aws_session_token=config["s3.session-token"],
        config=Config(retries={"max_attempts": 0}, s3={"addressing_style": "path"}),
    )


def folder_of(table: Json) -> str:
    location: str = table["metadata"]["location"]
    return location.removeprefix("s3://").partition("/")[2]


def denied(call: Callable[[], object], *codes: str) -> None:
    with pytest.raises(ClientError) as caught:
        call()
    assert caught.value.response["Error"]["Code"] in (codes or ("AccessDenied", "403")), caught.value


@pytest.fixture
def reads_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everybody may read, and nobody may write."""
    made = Delegation.__init__

    async def right_of(_request: Request, _table: object) -> Right:
        return Right.READ

    monkeypatch.setattr(Delegation, "__init__", lambda self, vendors, **more: made(self, vendors, right_of, **more))


# --- who gets them ---


async def test_nobody_who_did_not_ask_gets_credentials(lake: Wire, guard: Guard) -> None:
    assert (await lake.table())["config"] == {}
    for header in (None, "", "none", "vended_credentials", "something-new, and-another"):
        headers = {} if header is None else {"X-Iceberg-Access-Delegation": header}
        answer = await lake.get(T, headers=headers)
        assert answer.status == 200
        assert answer.json()["config"] == {} and "storage-credentials" not in answer.json()
    assert guard.assumed == []


async def test_a_known_mechanism_counts_among_unknown_ones(lake: Wire) -> None:
    await lake.table()
    asked = {"x-iceberg-access-delegation": " something-new ,Vended-Credentials"}
    assert "storage-credentials" in (await lake.get(T, headers=asked)).json()


async def test_a_warehouse_without_a_provider_answers_without_credentials(wire: Wire) -> None:
    await wire.namespace()
    await wire.table()
    answer = await wire.get(T, headers=VENDED)
    assert answer.json()["config"] == {} and "storage-credentials" not in answer.json()
    assert (await wire.get(f"{T}/credentials")).refusal == (406, "UnsupportedOperationException")


async def test_create_load_register_and_stage_give_credentials(lake: Wire, guard: Guard) -> None:
    made = (await lake.post("/namespaces/db/tables", {"name": "t", "schema": SCHEMA}, headers=VENDED)).json()
    staged = await lake.post(
        "/namespaces/db/tables", {"name": "u", "schema": SCHEMA, "stage-create": True}, headers=VENDED
    )
    loaded = (await lake.get(T, headers=VENDED)).json()
    location = loaded["metadata-location"]
    assert (await lake.delete(T)).status == 204
    registered = await lake.post(
        "/namespaces/db/register", {"name": "again", "metadata-location": location}, headers=VENDED
    )
    answers = {"t": made, "u": staged.json(), "again": registered.json()}
    for name, answer in answers.items():
        [credential] = answer["storage-credentials"]
        assert credential["prefix"] == answer["metadata"]["location"] + "/"
        config = credential["config"]
        assert config == answer["config"]
        assert config["client.region"] == REGION and config["s3.endpoint"] == f"{guard.url}/"
        assert config["s3.path-style-access"] == "true"
        assert config["client.refresh-credentials-endpoint"] == f"v1/main/namespaces/db/tables/{name}/credentials"
        left_s = int(config["s3.session-token-expires-at-ms"]) / 1000 - time.time()
        assert 3_000 < left_s <= 3_601
        client_of(guard, config).put_object(
            Bucket=guard.bucket, Key=f"{folder_of(answer)}/data/{name}.parquet", Body=b"x"
        )
    assert loaded["storage-credentials"] == made["storage-credentials"]
    assert "config" not in (await lake.commit([set_properties(a="b")], name="again", headers=VENDED)).json()


async def test_the_endpoint_for_refreshing_is_one_that_answers(lake: Wire) -> None:
    await lake.namespace("a b")
    await lake.namespace("a b", "ö/x")
    await lake.create("t + ü/%", "a b", "ö/x")
    path = f"/namespaces/{segment('a b', 'ö/x')}/tables/{segment('t + ü/%')}"
    for answer in (
        await lake.get(path, headers=VENDED),
        await lake.post(
            f"/namespaces/{segment('a b', 'ö/x')}/tables", {"name": "second ü", "schema": SCHEMA}, headers=VENDED
        ),
    ):
        endpoint = answer.json()["config"]["client.refresh-credentials-endpoint"]
        again = await lake.client.send("GET", f"/{endpoint}")
        assert again.status == 200, again.body
        [credential] = again.json()["storage-credentials"]
        assert credential["config"] == answer.json()["config"]
        assert "no-store" in (again.header("cache-control") or "")


async def test_in_a_transaction_tables_that_it_alone_sees_have_credentials_too(lake: Wire, guard: Guard) -> None:
    await lake.table()
    begun = (await lake.post("/transactions", json={})).json()
    inside = f"/v1/{begun['prefix']}/namespaces/db/tables"
    made = await lake.client.send("POST", inside, json={"name": "new", "schema": SCHEMA}, headers=VENDED)
    config = made.json()["config"]
    assert config["client.refresh-credentials-endpoint"] == f"{inside[1:]}/new/credentials"
    client_of(guard, config).put_object(Bucket=guard.bucket, Key=f"{folder_of(made.json())}/data/1", Body=b"x")
    again = await lake.client.send("GET", f"{inside}/new/credentials")
    assert again.status == 200
    assert (await lake.get("/namespaces/db/tables/new/credentials")).status == 404
    assert (await lake.client.send("GET", f"{inside}/t", headers=VENDED)).json()["storage-credentials"]
    assert (await lake.post(f"/transactions/{begun['transaction-id']}/abort", json={})).status == 200
    assert (await lake.client.send("GET", f"{inside}/new/credentials")).status >= 400


async def test_t_vend_10_inside_a_transaction_credentials_write_and_delete_nothing(lake: Wire, guard: Guard) -> None:
    table = await lake.table()
    key = f"{folder_of(table)}/data/committed"
    outside = client_of(guard, (await lake.get(T, headers=VENDED)).json()["config"])
    outside.put_object(Bucket=guard.bucket, Key=key, Body=b"rows")
    tx = await begin(lake)
    made = await tx.post("/namespaces/db/tables", {"name": "new", "schema": SCHEMA}, headers=VENDED)
    for answer, path in ((await tx.get(T, headers=VENDED), T), (made, "/namespaces/db/tables/new")):
        config = answer.json()["config"]
        assert config["s3.delete-enabled"] == "false"
        [refreshed] = (await tx.get(f"{path}/credentials")).json()["storage-credentials"]
        for given in (config, refreshed["config"]):
            inside = client_of(guard, given)
            own = f"{folder_of(answer.json())}/data/staged"
            inside.put_object(Bucket=guard.bucket, Key=own, Body=b"rows")
            for name in (key, own):
                with pytest.raises(ClientError, match="AccessDenied"):
                    inside.delete_object(Bucket=guard.bucket, Key=name)
    assert outside.get_object(Bucket=guard.bucket, Key=key)["Body"].read() == b"rows"
    # Outside of it nothing has changed: each gets a credential of its own.
    config = (await lake.get(T, headers=VENDED)).json()["config"]
    assert "s3.delete-enabled" not in config
    client_of(guard, config).delete_object(Bucket=guard.bucket, Key=key)


async def test_t_vend_10_inside_a_transaction_no_deletion_is_signed(opened: Opened, guard: Guard) -> None:
    async with opened(remote_signing=True) as lake:
        table, tx = await lake.table(), await begin(lake)
        base, folder = f"{guard.url}/{guard.bucket}", folder_of(table)
        uri = f"{base}/{folder}/data/a"
        many = {
            **to_sign("POST", f"{base}?delete", content_type="application/xml"),
            "body": f"<Delete><Object><Key>{folder}/data/a</Key></Object></Delete>",
        }
        for allowed in (to_sign("PUT", uri), to_sign("GET", uri), to_sign("DELETE", f"{uri}?uploadId=x")):
            assert (await tx.post(f"{T}/sign", allowed)).status == 200
        for refused in (to_sign("DELETE", uri), many):
            answer = await tx.post(f"{T}/sign", refused)
            assert answer.refusal == (403, "ForbiddenException")
            assert "inside a transaction" in answer.error["message"]
            assert (await lake.post(f"{T}/sign", refused)).status == 200


async def test_the_configuration_lists_what_the_warehouse_has(opened: Opened, wire: Wire) -> None:
    async def listed(lake: Wire) -> set[str]:
        endpoints = (await lake.client.send("GET", "/v1/config?warehouse=main")).json()["endpoints"]
        return {one.rpartition("/")[2] for one in endpoints} & {"credentials", "sign"}

    assert await listed(wire) == set()
    async with opened() as lake:
        assert await listed(lake) == {"credentials"}
    async with opened(remote_signing=True, role_arn=None) as lake:
        assert await listed(lake) == {"sign"}


# --- what they reach ---


async def test_t_vend_1_credentials_reach_their_table_and_nothing_else(lake: Wire, guard: Guard) -> None:
    mine, other = await lake.table("t"), await lake.table("u")
    config = (await lake.get(T, headers=VENDED)).json()["config"]
    client, bucket = client_of(guard, config), guard.bucket
    here, there = folder_of(mine), folder_of(other)
    client.put_object(Bucket=bucket, Key=f"{here}/data/a", Body=b"a")
    assert client.get_object(Bucket=bucket, Key=f"{here}/data/a")["Body"].read() == b"a"
    upload = client.create_multipart_upload(Bucket=bucket, Key=f"{here}/data/b")
    part = client.upload_part(
        Bucket=bucket, Key=f"{here}/data/b", UploadId=upload["UploadId"], PartNumber=1, Body=b"b" * 10
    )
    client.complete_multipart_upload(
        Bucket=bucket,
        Key=f"{here}/data/b",
        UploadId=upload["UploadId"],
        MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]},
    )
    assert client.list_objects_v2(Bucket=bucket, Prefix=f"{here}/data/")["KeyCount"] == 2
    client.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": f"{here}/data/b"}]})
    client.delete_object(Bucket=bucket, Key=f"{here}/data/a")

    metadata = other["metadata-location"].removeprefix(f"s3://{bucket}/")
    denied(lambda: client.get_object(Bucket=bucket, Key=metadata))
    denied(lambda: client.put_object(Bucket=bucket, Key=f"{there}/data/a", Body=b"a"))
    denied(lambda: client.delete_object(Bucket=bucket, Key=metadata))
    denied(lambda: client.put_object(Bucket=bucket, Key=f"{here}x/a", Body=b"a"))
    denied(lambda: client.list_objects_v2(Bucket=bucket, Prefix=f"{there}/"))
    denied(lambda: client.list_objects_v2(Bucket=bucket, Prefix=here[:-1]))
    denied(lambda: client.list_objects_v2(Bucket=bucket))
    denied(lambda: client.copy_object(Bucket=bucket, Key=f"{here}/stolen", CopySource=f"{bucket}/{metadata}"))
    denied(
        lambda: client.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": f"{here}/data/a"}, {"Key": metadata}]})
    )


async def test_t_vend_2_who_may_read_gets_credentials_that_read(reads_only: None, lake: Wire, guard: Guard) -> None:
    table = await lake.table()
    client = client_of(guard, (await lake.get(f"{T}/credentials")).json()["storage-credentials"][0]["config"])
    key = table["metadata-location"].removeprefix(f"s3://{guard.bucket}/")
    assert client.get_object(Bucket=guard.bucket, Key=key)["Body"].read()
    assert client.list_objects_v2(Bucket=guard.bucket, Prefix=f"{folder_of(table)}/")["KeyCount"] == 1
    denied(lambda: client.put_object(Bucket=guard.bucket, Key=f"{folder_of(table)}/data/a", Body=b"a"))
    denied(lambda: client.delete_object(Bucket=guard.bucket, Key=key))


async def test_t_vend_3_credentials_go_as_far_as_the_rights_of_who_asks_and_end_with_them(
    guard: Guard, tmp_path: Path
) -> None:
    given: Json = {
        "warehouse": f"s3://{guard.bucket}/{tmp_path.name}",
        "warehouse_options": guard.options(),
        "warehouse_credentials": {"role_arn": ROLE, "sts_endpoint": guard.url, "remote_signing": True},
    }
    async with house(tmp_path, **given) as people:
        root, bob, eve = people.root, people.bob, people.eve
        await root.namespace()
        table = await root.table()
        await root.grant("user:bob", "write", **on_table())
        key = f"{folder_of(table)}/data/a"
        uri = f"{guard.url}/{guard.bucket}/{key}"

        async def writes(person: Person) -> bool:
            found = await person.get(f"{T}/credentials")
            client = client_of(guard, found.json()["storage-credentials"][0]["config"])
            signed = await person.post(f"{T}/sign", to_sign("PUT", uri))
            try:
                client.put_object(Bucket=guard.bucket, Key=key, Body=b"a")
            except ClientError:
                assert signed.status == 403
                return False
            assert signed.status == 200
            return True

        assert await writes(bob) and await writes(root)
        # Root's and Bob's were made already: what is remembered for them is for nobody with less.
        for refused in (
            await eve.get(T, headers=VENDED),
            await eve.get(f"{T}/credentials"),
            await eve.post(f"{T}/sign", to_sign("GET", uri)),
        ):
            assert refused.refusal == (404, "NoSuchTableException") and b"s3." not in refused.body
        await root.revoke("user:bob", **on_table())
        await root.grant("user:bob", "read", **on_table())
        assert not await writes(bob)
        begun = (await bob.post("/transactions")).json()
        assert not await writes(bob.at(begun["prefix"]))
        await root.revoke("user:bob", **on_table())
        assert (await bob.get(f"{T}/credentials")).status == 404


async def test_t_vend_4_a_location_that_another_table_has_is_refused_and_gets_no_credentials(
    lake: Wire, guard: Guard
) -> None:
    root = lake.settings.warehouse
    inner = await lake.table("inner", location=f"{root}/shared/deep/inner")
    outer = {"name": "outer", "schema": SCHEMA, "location": f"{root}/shared"}
    answer = await lake.post("/namespaces/db/tables", outer, headers=VENDED)
    assert answer.refusal == (400, "BadRequestException") and "db.inner" in answer.error["message"]
    # And nobody gets to a table's files by staging another one in its place.
    for location in (inner["metadata"]["location"], (await lake.table("own"))["metadata"]["location"]):
        staged = await lake.post(
            "/namespaces/db/tables",
            {"name": "thief", "schema": SCHEMA, "location": location, "stage-create": True},
            headers=VENDED,
        )
        assert "storage-credentials" not in staged.json(), staged.body
    assert guard.assumed == []


async def test_a_location_of_ones_own_choice_gets_credentials_if_it_is_alone(lake: Wire) -> None:
    await lake.table("t", location=f"{lake.settings.warehouse}/chosen/t")
    await lake.table("t2", location=f"{lake.settings.warehouse}/chosen/t2")
    [credential] = (await lake.get(T, headers=VENDED)).json()["storage-credentials"]
    assert credential["prefix"].endswith("/chosen/t/")


async def test_t_vend_4_nobody_can_put_a_table_below_anothers_folder_or_make_a_namespace_look_like_one(
    lake: Wire,
) -> None:
    own = (await lake.table("own"))["metadata"]["location"]
    refused = await lake.create("t", location=f"{own}/data")
    assert refused.refusal == (400, "BadRequestException")
    uuid = new_key()
    await lake.namespace("top")
    await lake.namespace("top", f"x-{uuid}")
    victim = await lake.create("victim", "top", f"x-{uuid}")
    thief = await lake.post(
        f"/namespaces/top/tables/{segment('x')}",
        creation(updates=[{"action": "assign-uuid", "uuid": uuid}]),
        headers=VENDED,
    )
    assert thief.status == 200
    assert not victim.json()["metadata"]["location"].startswith(thief.json()["metadata"]["location"] + "/")


async def test_t_vend_4_nothing_comes_to_lie_in_a_folder_that_somebody_has_credentials_for(
    guard: Guard, tmp_path: Path
) -> None:
    given: Json = {
        "warehouse": f"s3://{guard.bucket}/{tmp_path.name}",
        "warehouse_options": guard.options(),
        "warehouse_credentials": {"role_arn": ROLE, "sts_endpoint": guard.url},
    }
    async with house(tmp_path, **given) as people:
        root, ann, bob = people.root, people.ann, people.bob
        await root.namespace()
        await root.namespace("sales")
        place = f"{given['warehouse']}/sales"
        await root.table("legacy", location=place)
        await root.grant("user:ann", "read", **on_table("legacy"))
        await root.grant("user:bob", "manage", **on_namespace("sales"))
        assert (await ann.get("/namespaces/db/tables/legacy/credentials")).status == 200
        # The catalog's own choice would be a place in Ann's folder.
        refused = await bob.create("orders", "sales")
        assert refused.refusal == (400, "BadRequestException") and "overlaps" in refused.error["message"]
        assert "legacy" not in refused.error["message"]
        assert (await root.create("inner", location=f"{place}/deep/inner")).status == 400
        moved = await root.commit([{"action": "set-location", "location": f"{place}/x"}], name="legacy")
        assert moved.status == 200
        await root.table("other")
        into = [{"action": "set-location", "location": f"{place}/x/y"}]
        assert (await root.commit(into, name="other")).refusal == (400, "BadRequestException")
        # And once that table has gone elsewhere, the place is anybody's again.
        assert (await bob.create("orders", "sales")).status == 200
        assert (await ann.get("/namespaces/db/tables/legacy/credentials")).status == 200


async def test_t_vend_4_two_that_take_places_one_inside_the_other_at_once_do_not_both_get_credentials(
    lake: Wire,
) -> None:
    places = {"outer": f"{lake.settings.warehouse}/both", "inner": f"{lake.settings.warehouse}/both/inner"}
    made = await asyncio.gather(*(lake.create(name, location=place) for name, place in places.items()))
    if made[1].status == 200:
        assert (await lake.get("/namespaces/db/tables/outer/credentials")).status in (403, 404)
    else:
        assert made[0].status == 200 and made[1].refusal == (400, "BadRequestException")


async def test_t_vend_4_a_table_in_the_place_of_another_gets_nothing_that_was_made_for_that(lake: Wire) -> None:
    place = f"{lake.settings.warehouse}/chosen/t"
    own = (await lake.table("own"))["metadata"]["location"]
    await lake.table("t", location=place)
    for name in ("t", "own"):
        assert (await lake.get(f"/namespaces/db/tables/{name}/credentials")).status == 200
    for location in (own, place):
        staged = {"name": "thief", "schema": SCHEMA, "location": location, "stage-create": True}
        answer = await lake.post("/namespaces/db/tables", staged, headers=VENDED)
        assert "storage-credentials" not in answer.json()
    assert (await lake.delete(T)).status == 204
    await lake.table("t", location=place)
    # What the first one has left behind lies there still.
    assert (await lake.get(f"{T}/credentials")).refusal == (403, "ForbiddenException")


async def test_t_vend_4_a_table_does_not_come_back_around_others_that_came_meanwhile(lake: Wire) -> None:
    place = f"{lake.settings.warehouse}/chosen"

    async def move(location: str) -> Any:
        return await lake.commit([{"action": "set-location", "location": location}])

    await lake.table("t", location=place)
    assert (await lake.get(f"{T}/credentials")).status == 200
    assert (await move(f"{lake.settings.warehouse}/elsewhere")).status == 200
    await lake.table("inner", location=f"{place}/inner")
    assert (await move(place)).refusal == (400, "BadRequestException")
    assert (await move(f"{lake.settings.warehouse}/third")).status == 200
    # A dropped one of the same name gives way.
    assert (await lake.delete(T)).status == 204
    await lake.table("t", location=f"{place}2")
    assert (await move(f"{lake.settings.warehouse}/third")).status == 200


@pytest.mark.parametrize("kind", ["tables", "views"])
@pytest.mark.parametrize("isolation", ["serializable", "snapshot"])
async def test_t_vend_4_what_a_transaction_makes_in_a_folder_that_was_taken_meanwhile_is_not_published(
    lake: Wire, isolation: str, kind: str
) -> None:
    place = f"{lake.settings.warehouse}/chosen"
    begun = (await lake.post("/transactions", json={"isolation": isolation})).json()
    inside = f"/v1/{begun['prefix']}/namespaces/db/{kind}"
    made = {"name": "inner", "schema": SCHEMA, "location": f"{place}/inner"}
    of_a_view = {"view-version": VIEW_VERSION, "properties": {}}
    assert (await lake.client.send("POST", inside, json=made | (of_a_view if kind == "views" else {}))).status == 200
    await lake.table("t", location=place)
    published = await lake.post(f"/transactions/{begun['transaction-id']}/commit", json={})
    assert published.refusal == (409, "CommitFailedException"), published.body
    assert (await lake.get(f"/namespaces/db/{kind}/inner")).status == 404


async def test_t_vend_4_what_was_given_inside_a_transaction_is_not_for_those_who_come_after_it(
    lake: Wire, guard: Guard
) -> None:
    place = f"{lake.settings.warehouse}/chosen"
    begun = (await lake.post("/transactions", json={})).json()
    inside = f"/v1/{begun['prefix']}/namespaces/db/tables"
    made = await lake.client.send("POST", inside, json={"name": "t", "schema": SCHEMA, "location": place})
    assert made.status == 200
    assert (await lake.client.send("GET", f"{inside}/t/credentials")).status == 200
    await lake.table("inner", location=f"{place}/inner")
    refused = await lake.post(f"/transactions/{begun['transaction-id']}/commit", json={})
    assert refused.status == 409 and "overlaps" in refused.error["message"]
    assert (await lake.get("/namespaces/db/tables/inner/credentials")).status in (200, 403)


async def test_t_vend_5_characters_with_a_meaning_in_policies_get_no_credentials(lake: Wire, guard: Guard) -> None:
    await lake.table("t", location=f"{lake.settings.warehouse}/*")
    assert "storage-credentials" not in (await lake.get(T, headers=VENDED)).json()
    assert (await lake.get(f"{T}/credentials")).refusal == (403, "ForbiddenException")
    assert guard.assumed == []


async def test_t_vend_4_a_table_that_writes_outside_of_its_location_gets_no_credentials(
    lake: Wire, guard: Guard
) -> None:
    await lake.table("t", properties={"write.data.path": f"{lake.settings.warehouse}/elsewhere"})
    assert "storage-credentials" not in (await lake.get(T, headers=VENDED)).json()
    refused = await lake.get(f"{T}/credentials")
    assert refused.refusal == (403, "ForbiddenException") and "write.data.path" in refused.error["message"]


async def test_t_vend_4_no_view_lies_in_the_location_of_a_table(lake: Wire) -> None:
    place = f"{lake.settings.warehouse}/chosen"
    await lake.table("t", location=f"{place}/t")
    assert (await lake.get(f"{T}/credentials")).status == 200
    for location in (f"{place}/t", f"{place}/t/views/v"):
        body = {"name": "v", "schema": SCHEMA, "view-version": VIEW_VERSION, "properties": {}, "location": location}
        assert (await lake.post("/namespaces/db/views", body)).refusal == (400, "BadRequestException")
    view = await lake.view("v", location=f"{place}/v")
    moves = {"requirements": [], "updates": [{"action": "set-location", "location": f"{place}/t/v"}]}
    assert (await lake.post("/namespaces/db/views/v", moves)).refusal == (400, "BadRequestException")
    for name, location in (("same", view["metadata"]["location"]), ("around", place)):
        assert (await lake.create(name, location=location)).refusal == (400, "BadRequestException")


async def test_t_vend_4_what_an_open_transaction_has_begun_in_a_folder_counts(lake: Wire) -> None:
    place = f"{lake.settings.warehouse}/chosen"
    begun = (await lake.post("/transactions", json={})).json()
    inside = f"/v1/{begun['prefix']}/namespaces/db/tables"
    made = {"name": "inner", "schema": SCHEMA, "location": f"{place}/inner"}
    assert (await lake.client.send("POST", inside, json=made)).status == 200
    # What a transaction has begun is not in its own way.
    assert (await lake.client.send("GET", f"{inside}/inner/credentials")).status == 200
    await lake.table("t", location=place)
    assert (await lake.get(f"{T}/credentials")).refusal == (403, "ForbiddenException")


async def test_t_vend_4_no_table_writes_into_anothers_folder(lake: Wire) -> None:
    place = f"{lake.settings.warehouse}/chosen"
    own, chosen = (await lake.table("own"))["metadata"]["location"], await lake.table("chosen", location=place)
    for path in (own, f"{own}/data/b", f"{place}/data", chosen["metadata"]["location"]):
        for name in ("write.data.path", "write.metadata.path"):
            refused = await lake.create("t", properties={name: path})
            assert refused.refusal == (400, "BadRequestException") and "overlaps" in refused.error["message"]
    table = await lake.table("t", properties={"write.data.path": f"{lake.settings.warehouse}/elsewhere"})
    assert (await lake.commit([set_properties(**{"write.data.path": own})])).refusal == (400, "BadRequestException")
    assert (await lake.commit([set_properties(a="b")])).status == 200
    inside = {"write.data.path": f"{table['metadata']['location']}/data"}
    assert (await lake.commit([set_properties(**inside)])).status == 200


# --- metadata files are the catalog's ---


def owner_of(guard: Guard) -> Any:
    """S3 with the keys to everything: as somebody who got at a metadata file by whatever way."""
    config = {
        "client.region": REGION,
        "s3.access-key-id": s3_guarded.ROOT_KEY,
        "s3.secret-access-key": s3_guarded.ROOT_SECRET,
    }
    return client_of(guard, {**config, "s3.session-token": None})


def altered(guard: Guard, table: Json, **fields: Any) -> None:
    """Replace the table's metadata file by one that says something else."""
    key = table["metadata-location"].removeprefix(f"s3://{guard.bucket}/")
    owner_of(guard).put_object(Bucket=guard.bucket, Key=key, Body=json.dumps({**table["metadata"], **fields}).encode())


async def test_t_vend_9_what_writers_are_given_does_not_write_metadata_files(opened: Opened, guard: Guard) -> None:
    async with opened(remote_signing=True) as lake:
        table = await lake.table()
        client = client_of(guard, (await lake.get(T, headers=VENDED)).json()["config"])
        current = table["metadata-location"].removeprefix(f"s3://{guard.bucket}/")
        for key in (current, f"{folder_of(table)}/data/00009-x.gz.metadata.json"):
            denied(partial(client.put_object, Bucket=guard.bucket, Key=key, Body=b"{}"))
            denied(partial(client.create_multipart_upload, Bucket=guard.bucket, Key=key))
            for method, query in (("PUT", ""), ("POST", "?uploads"), ("PUT", "?partNumber=1&uploadId=u")):
                asked = to_sign(method, f"{guard.url}/{guard.bucket}/{key}{query}")
                assert (await lake.post(f"{T}/sign", asked)).refusal == (403, "ForbiddenException")
        assert (await lake.post(f"{T}/sign", to_sign("GET", f"{guard.url}/{guard.bucket}/{current}"))).status == 200


@pytest.mark.parametrize("role", [ROLE, None])
async def test_t_vend_9_an_altered_metadata_file_opens_nobody_elses_folder(
    opened: Opened, guard: Guard, role: str | None
) -> None:
    signing = {"role_arn": role, "remote_signing": True}
    async with opened(**signing) as lake:
        await lake.namespace("hr-data")
        table = await lake.table("t")
        victim = await lake.table("secret", "hr-data")
        root = lake.settings.warehouse
    other = victim["metadata"]
    forgeries: list[Json] = [
        {"location": other["location"], "table-uuid": other["table-uuid"]},
        {"location": other["location"]},
        {"location": f"{root}/hr-data", "table-uuid": "data"},
        {"properties": {"write.data.path": other["location"]}},
        {"last-updated-ms": table["metadata"]["last-updated-ms"] + 1},
    ]
    reading = to_sign("GET", victim["metadata-location"].replace("s3://", f"{guard.url}/"))
    for forged in forgeries:
        altered(guard, table, **forged)
        # Another process, which has not read the file yet.
        async with opened(**signing) as lake:
            lake.damaged.add("db.t")
            for answer in (
                await lake.get(T, headers=VENDED),
                await lake.get(f"{T}/credentials"),
                await lake.post(f"{T}/sign", reading),
                await lake.commit([set_properties(a="b")]),
                await lake.post("/tables/batch-load", {"identifiers": [{"namespace": ["db"], "name": "t"}]}),
            ):
                assert answer.status in ((500, 406) if role is None else (500,)), (forged, answer.body)
                assert "was altered" in answer.error["message"] or answer.status == 406
                assert b"s3.secret" not in answer.body and b"Signature" not in answer.body
    assert guard.assumed == []


async def test_a_metadata_file_that_is_put_back_is_good_again_at_once(opened: Opened, guard: Guard) -> None:
    async with opened() as lake:
        table = await lake.table()
    altered(guard, table, location="s3://elsewhere")
    async with opened() as lake:
        assert (await lake.get(T)).status == 500
        owner_of(guard).put_object(
            Bucket=guard.bucket,
            Key=table["metadata-location"].removeprefix(f"s3://{guard.bucket}/"),
            Body=orjson.dumps(table["metadata"]),
        )
        assert (await lake.get(T)).status == 200


async def test_t_vend_9_a_repeated_creation_does_not_trust_an_altered_file(opened: Opened, guard: Guard) -> None:
    key, body = new_key(), {"name": "t", "schema": SCHEMA}
    async with opened() as lake:
        victim = await lake.table("secret")
        table = (await lake.post("/namespaces/db/tables", body, headers={"Idempotency-Key": key})).json()
    altered(guard, table, location=victim["metadata"]["location"])
    async with opened() as lake:
        lake.damaged.add("db.t")
        again = await lake.post("/namespaces/db/tables", body, headers={"Idempotency-Key": key, **VENDED})
        assert again.status == 504 and b"s3.secret" not in again.body, again.body
    assert guard.assumed == []


async def test_t_vend_9_what_an_older_release_pointed_to_is_compared_with_the_catalog_too(
    opened: Opened, guard: Guard
) -> None:
    async with opened() as lake:
        table, victim = await lake.table(), await lake.table("secret")
        await without_digest(lake, table["metadata"]["table-uuid"])
    for forged in ({"location": victim["metadata"]["location"]}, {"table-uuid": victim["metadata"]["table-uuid"]}):
        altered(guard, table, **forged)
        async with opened() as lake:
            lake.damaged.add("db.t")
            for answer in (await lake.get(T, headers=VENDED), await lake.get(f"{T}/credentials")):
                assert answer.status == 500 and "was altered" in answer.error["message"]
    # Where a table writes can be a reason to give nothing, and never one to give more.
    altered(guard, table, properties={"write.data.path": victim["metadata"]["location"]})
    async with opened() as lake:
        assert (await lake.get(f"{T}/credentials")).status == 403
    altered(guard, table)
    async with opened() as lake:
        [credential] = (await lake.get(f"{T}/credentials")).json()["storage-credentials"]
        assert credential["prefix"] == f"{table['metadata']['location']}/"


async def without_digest(lake: Wire, uuid: str) -> None:
    """The pointer as a release has left it that knew no digests."""
    assert lake.service is not None
    parts = lake.service.catalogs["main"].parts
    key = parts.keys.table(uuid)
    cell = (await parts.store.read([key]))[key]
    value = {name: field for name, field in (cell.value or {}).items() if name != DIGEST}
    await parts.store.commit(Transaction(parts.new_id(), "", (Write(key, cell.revision, value),), answer={}))


# --- how often, and what if not ---


async def test_credentials_are_made_once_for_all_who_ask_at_once_and_afterwards(lake: Wire, guard: Guard) -> None:
    await lake.table()
    guard.hold_sts.clear()
    asking = [asyncio.create_task(lake.get(T, headers=VENDED)) for _ in range(20)]
    await asyncio.sleep(0)
    guard.hold_sts.set()
    answers = await asyncio.gather(*asking)
    answers.append(await lake.get(f"{T}/credentials"))
    assert len({answer.json()["storage-credentials"][0]["config"]["s3.access-key-id"] for answer in answers}) == 1
    assert len(guard.assumed) == 1


async def test_t_vend_8_no_cache_keeps_an_answer_with_keys(opened: Opened, guard: Guard) -> None:
    async with opened(remote_signing=True) as lake:
        table = await lake.table()
        uri = f"{guard.url}/{guard.bucket}/{folder_of(table)}/data/a"
        for answer in (await lake.get(T, headers=VENDED), await lake.get(f"{T}/credentials")):
            assert answer.header("cache-control") == "private, no-store"
        for method in ("GET", "PUT"):
            signed = await lake.post(f"{T}/sign", to_sign(method, uri))
            assert signed.status == 200 and signed.header("cache-control") == "no-cache"


async def test_what_a_client_has_already_is_known_by_its_credentials_too(lake: Wire) -> None:
    await lake.table()
    plain, with_them = await lake.get(T), await lake.get(T, headers=VENDED)
    tag, other = with_them.header("etag"), plain.header("etag")
    assert tag and other and tag != other
    assert (await lake.get(T, headers={**VENDED, "If-None-Match": tag})).status == 304
    assert (await lake.get(T, headers={**VENDED, "If-None-Match": other})).status == 200
    assert (await lake.get(T, headers={"If-None-Match": other})).status == 304
    assert "no-store" in (with_them.header("cache-control") or "") and plain.header("cache-control") is None
    refs = await lake.get(f"{T}?snapshots=refs", headers=VENDED)
    assert refs.json()["storage-credentials"] and refs.header("etag") not in (tag, other)


@pytest.mark.parametrize(("status", "answered"), [(403, 500), (503, 503)])
async def test_t_vend_7_a_provider_that_fails_is_an_error_and_nothing_wider_is_given(
    lake: Wire, guard: Guard, status: int, answered: int
) -> None:
    await lake.table()
    guard.sts_status = status
    for answer in (
        await lake.get(T, headers=VENDED),
        await lake.get(f"{T}/credentials"),
        await lake.post("/namespaces/db/tables", {"name": "u", "schema": SCHEMA, "stage-create": True}, headers=VENDED),
    ):
        assert answer.status == answered and "STS" in answer.error["message"]
        assert (answer.header("retry-after") is not None) == (answered == 503)
        assert b"secret" not in answer.body and ROLE.encode() not in answer.body
    # A change that has happened does not sound as if it had not.
    made = await lake.post("/namespaces/db/tables", {"name": "v", "schema": SCHEMA}, headers=VENDED)
    assert made.status == 504 and made.header("x-lakepact-transaction")
    assert (await lake.get("/namespaces/db/tables/v")).status == 200
    guard.sts_status = 200
    assert (await lake.get(T, headers=VENDED)).json()["storage-credentials"]


async def test_a_server_of_another_cloud_than_its_sts_says_that_it_did_not_answer(opened: Opened) -> None:
    async with opened(sts_endpoint="http://127.0.0.1:1") as lake:
        await lake.table()
        answer = await lake.get(T, headers=VENDED)
        assert answer.refusal == (503, "ServiceUnavailableException") and "did not answer" in answer.error["message"]


# --- remote signing ---


def sent(answer: Json, method: str, body: bytes | None = None) -> tuple[int, bytes]:
    """Make the request that was signed."""
    headers = {name: values[0] for name, values in answer["headers"].items()}
    request = urllib.request.Request(answer["uri"], body, headers, method=method)
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=PATIENCE_S) as found:
            return found.status, found.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def to_sign(method: str, uri: str, **headers: str) -> Json:
    given = {"x-amz-content-sha256": "UNSIGNED-PAYLOAD", "User-Agent": "test", **headers}
    return {
        "method": method,
        "region": REGION,
        "uri": uri,
        "headers": {name.replace("_", "-"): [value] for name, value in given.items()},
    }


@pytest.mark.parametrize("role", [ROLE, None])
async def test_t_vend_6_signed_requests_work_and_only_for_the_table(
    opened: Opened, guard: Guard, role: str | None
) -> None:
    async with opened(role_arn=role, remote_signing=True) as lake:
        table, other = await lake.table("t"), await lake.table("u")
        config = (await lake.get(T, headers=SIGNING)).json()["config"]
        assert config["s3.remote-signing-enabled"] == "true"
        endpoint = config["signer.endpoint"]
        assert endpoint == "v1/main/namespaces/db/tables/t/sign" == config["s3.signer.endpoint"]
        assert "s3.access-key-id" not in config
        base = f"{guard.url}/{guard.bucket}"
        name = f"{base}/{folder_of(table)}/data/day=2026-01-01T00%253A00/ü%20%2B1.parquet".replace("ü", "%C3%BC")

        async def sign(body: Json) -> Any:
            return await lake.client.send("POST", f"/{endpoint}", json=body)

        put = await sign(to_sign("PUT", name, content_type="text/plain"))
        assert put.status == 200 and put.header("cache-control") == "no-cache", put.body
        assert await asyncio.to_thread(sent, put.json(), "PUT", b"rows") == (200, b"")
        got = (await sign(to_sign("GET", name + "?x-id=GetObject", Range="bytes=0-1"))).json()
        assert await asyncio.to_thread(sent, got, "GET") == (206, b"ro")
        # What is signed is this request and no other.
        assert (await asyncio.to_thread(sent, {**got, "uri": got["uri"] + "&versionId=1"}, "GET"))[0] == 403
        listed = (await sign(to_sign("GET", f"{base}?list-type=2&prefix={folder_of(table)}/"))).json()
        status, page = await asyncio.to_thread(sent, listed, "GET")
        assert status == 200 and b"parquet" in page
        prefix = folder_of(other)
        for refused in (
            to_sign("GET", f"{base}/{prefix}/data/a"),
            to_sign("GET", f"{base}?list-type=2&prefix={prefix}/"),
            to_sign("GET", f"{base}?list-type=2"),
        ):
            assert (await sign(refused)).refusal == (403, "ForbiddenException")
        keys = f"<Delete><Object><Key>{folder_of(table)}/data/x</Key></Object></Delete>"
        many = await sign({**to_sign("POST", f"{base}?delete", content_type="application/xml"), "body": keys})
        assert many.status == 200
        deleted = await asyncio.to_thread(sent, many.json(), "POST", keys.encode())
        assert deleted[0] == 200
        other_body = keys.replace("data/x", "data/y").encode()
        assert (await asyncio.to_thread(sent, many.json(), "POST", other_body))[0] in (400, 403)
        assert (await lake.client.send("POST", "/v1/main/namespaces/db/tables/none/sign", json=refused)).status == 404


@pytest.mark.parametrize("role", [ROLE, None])
async def test_t_vend_4_signing_is_not_offered_for_a_table_that_is_not_alone(
    opened: Opened, guard: Guard, role: str | None
) -> None:
    async with opened(role_arn=role, remote_signing=True) as lake:
        place = f"{lake.settings.warehouse}/chosen"
        begun = (await lake.post("/transactions", json={})).json()
        inner = {"name": "inner", "schema": SCHEMA, "location": f"{place}/inner"}
        assert (await lake.client.send("POST", f"/v1/{begun['prefix']}/namespaces/db/tables", json=inner)).status == 200
        table = await lake.table("t", location=place)
        assert (await lake.get(T, headers=SIGNING)).json()["config"] == {}
        uri = f"{guard.url}/{guard.bucket}/{folder_of(table)}/data/a"
        assert (await lake.post(f"{T}/sign", to_sign("GET", uri))).refusal == (403, "ForbiddenException")
        alone = await lake.table("alone", location=f"{place}2")
        path = "/namespaces/db/tables/alone"
        assert (await lake.get(path, headers=SIGNING)).json()["config"]["s3.remote-signing-enabled"] == "true"
        uri = f"{guard.url}/{guard.bucket}/{folder_of(alone)}/data/a"
        assert (await lake.post(f"{path}/sign", to_sign("GET", uri))).status == 200


async def test_what_is_no_url_is_not_an_error_of_the_server(opened: Opened) -> None:
    async with opened(remote_signing=True) as lake:
        await lake.table()
        assert (await lake.post(f"{T}/sign", to_sign("GET", "http://[::1/x"))).refusal == (400, "BadRequestException")


async def test_t_vend_2_who_may_read_has_only_reading_signed(reads_only: None, opened: Opened, guard: Guard) -> None:
    async with opened(remote_signing=True) as lake:
        table = await lake.table()
        uri = f"{guard.url}/{guard.bucket}/{folder_of(table)}/data/a"
        assert (await lake.post(f"{T}/sign", to_sign("GET", uri))).status == 200
        assert (await lake.post(f"{T}/sign", to_sign("HEAD", uri))).status == 200
        for method in ("PUT", "DELETE", "POST"):
            assert (await lake.post(f"{T}/sign", to_sign(method, uri))).status == 403


async def test_who_asks_for_both_gets_credentials_and_a_warehouse_signs_only_if_told(opened: Opened) -> None:
    both = {"X-Iceberg-Access-Delegation": "remote-signing,vended-credentials"}
    async with opened(remote_signing=True) as lake:
        await lake.table()
        found = (await lake.get(T, headers=both)).json()
        assert found["storage-credentials"] and "s3.remote-signing-enabled" not in found["config"]


async def test_a_warehouse_that_signs_nothing_says_so(lake: Wire) -> None:
    await lake.table()
    assert (await lake.get(T, headers=SIGNING)).json()["config"] == {}
    answer = await lake.post(f"{T}/sign", to_sign("GET", "http://x/y"))
    assert answer.refusal == (406, "UnsupportedOperationException")
