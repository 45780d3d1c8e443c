"""Which requests are signed: this table's, in one spelling, and nothing that S3 could read in another way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import boto3
import pytest
from botocore import UNSIGNED
from botocore.config import Config

from lakepact.catalog.errors import BadRequest, Refusal
from lakepact.errors import InvalidRequest
from lakepact.server.vending.s3_requests import Endpoint, NotSigned, SignRequest, ToSign, parse_sign_request, to_sign
from lakepact.server.vending.scope import Right, Scope
from lakepact.server.vending.sigv4 import sha256

WRITER = Scope("s3://lake/wh/db/t-1", "lake", "wh/db/t-1", Right.WRITE)
READER = Scope("s3://lake/wh/db/t-1", "lake", "wh/db/t-1", Right.READ)
OWN = Endpoint("http://minio.example:9000")
AMAZON = Endpoint(None)
BASE = "http://minio.example:9000/lake"
FILE = f"{BASE}/wh/db/t-1/data/a.parquet"


def checked(
    method: str, uri: str, scope: Scope = WRITER, endpoint: Endpoint = OWN, body: str | None = None, **headers: str
) -> ToSign:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    return to_sign(SignRequest(method, uri, "us-east-1", given, body), scope, endpoint)


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_reading_is_signed_for_all_who_may_see_the_table(method: str) -> None:
    assert checked(method, FILE, READER).uri == FILE


@pytest.mark.parametrize(
    ("method", "query"),
    [
        ("PUT", ""),
        ("PUT", "?partNumber=1&uploadId=x"),
        ("POST", "?uploads"),
        ("POST", "?uploadId=x"),
        ("DELETE", ""),
        ("DELETE", "?uploadId=x"),
        ("GET", "?uploadId=x"),
    ],
)
def test_writing_is_signed_for_those_who_may(method: str, query: str) -> None:
    assert checked(method, FILE + query).method == method
    with pytest.raises(NotSigned, match="right to write"):
        checked(method, FILE + query, READER)


@pytest.mark.parametrize(
    "uri",
    [
        f"{BASE}/wh/db/t-2/data/a.parquet",
        f"{BASE}/wh/db/t-10/a",
        f"{BASE}/wh/db/t-1",
        f"{BASE}/wh/db/t-1/../t-2/a",
        f"{BASE}/wh/db/t-1/%2e%2e/t-2/a",
        f"{BASE}/wh/db/t-1/%2E%2E%2Ft-2/a",
        f"{BASE}/wh/db/t-1/%252e%252e/t-2/a",
        f"{BASE}/wh/db/t-1/%25252e%25252e%25252ft-2/a",
        f"{BASE}/wh/db/t-1/.%2e/t-2",
        f"{BASE}/wh/db/t-1/./a",
        f"{BASE}/wh/db/t-1//a",
        f"{BASE}//wh/db/t-1/a",
        f"{BASE}/wh/db/t-1/a%5C..%5C..%5Cb",
        f"{BASE}/wh/db/t-1/a%00b",
        f"{BASE}/WH/db/t-1/a",
        "http://minio.example:9000/other/wh/db/t-1/a",
        "http://minio.example:9000/lake2/wh/db/t-1/a",
        "http://minio.example:9000/%6cake/wh/db/t-1/a",
        "http://minio.example:9001/lake/wh/db/t-1/a",
        "https://minio.example:9000/lake/wh/db/t-1/a",
        "http://evil.example/lake/wh/db/t-1/a",
        "http://minio.example.evil.example:9000/lake/wh/db/t-1/a",
        "http://other.minio.example:9000/wh/db/t-1/a",
        "http://minio.example:9000@evil.example/lake/wh/db/t-1/a",
        "http://user:pass@minio.example:9000/lake/wh/db/t-1/a",
        f"{FILE}#fragment",
        f"{FILE}?acl",
        f"{FILE}?tagging",
        f"{FILE}?torrent",
        f"{FILE}?versionId=1&versionId=2",
        f"{FILE}?response-content-type=text/html",
        f"{BASE}?list-type=2",
        f"{BASE}?list-type=2&prefix=",
        f"{BASE}?list-type=2&prefix=wh/db/t-1",
        f"{BASE}?list-type=2&prefix=wh/db/t-2/",
        f"{BASE}?list-type=2&prefix=wh/db/t-1/&prefix=",
        f"{BASE}?prefix=wh/db/t-1/",
        f"{BASE}?uploads&prefix=wh/db/t-1/",
        f"{BASE}?versions&prefix=wh/db/t-1/",
        f"{BASE}?policy",
        f"{BASE}",
        "http://minio.example:9000/",
    ],
)
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_t_vend_6_what_is_not_this_tables_is_not_signed(method: str, uri: str) -> None:
    with pytest.raises(NotSigned):
        checked(method, uri)


@pytest.mark.parametrize("method", ["POST", "PATCH", "OPTIONS", "TRACE", "get"])
def test_other_methods_are_not_signed(method: str) -> None:
    with pytest.raises(NotSigned):
        checked(method, FILE)


@pytest.mark.parametrize(
    "uri",
    [
        "http://[::1/x",
        "http://[/x",
        f"{FILE}/ a",
        f"{FILE}\\..",
        f"{FILE}\n",
        f"{BASE}/wh/db/t-1/%zz",
        f"{FILE}ü",
        f"{BASE}/wh/db/t-1/%ff",
    ],
)
def test_what_is_no_url_is_a_bad_request(uri: str) -> None:
    with pytest.raises(BadRequest):
        checked("GET", uri)


@pytest.mark.parametrize("folder", ["wh/db/t-1", "elsewhere"])
def test_a_name_that_is_longer_than_s3_takes_is_refused_before_it_is_decoded(folder: str) -> None:
    # Encoded forty thousand times over: each decoding would be as long as the one before.
    for name in ("%" + "25" * 40_000, "a" * 1_025, "%C3%BC" * 600):
        with pytest.raises(BadRequest, match="1,024 bytes"):
            checked("GET", f"{BASE}/{folder}/{name}")
        with pytest.raises(BadRequest, match="1,024 bytes"):
            checked("POST", f"{BASE}?delete", body=deletion(f"{folder}/{name.replace('%C3%BC', 'üü')}"))
    with pytest.raises(NotSigned, match="characters"):
        checked("POST", f"{BASE}?delete", body=deletion("x" * 3_000_000))


def test_a_name_that_is_encoded_over_and_over_is_not_signed() -> None:
    for rounds, is_signed in ((0, True), (2, True), (300, False)):
        uri = f"{BASE}/wh/db/t-1/%{'25' * rounds}20a"
        if is_signed:
            assert checked("GET", uri).uri == uri
        else:
            with pytest.raises(NotSigned, match="over and over"):
                checked("GET", uri)


def test_listing_is_signed_inside_of_the_table() -> None:
    found = checked("GET", f"{BASE}?list-type=2&max-keys=10&prefix=wh/db/t-1/data/&x-id=ListObjectsV2", READER)
    assert found.uri == f"{BASE}/?list-type=2&max-keys=10&prefix=wh%2Fdb%2Ft-1%2Fdata%2F&x-id=ListObjectsV2"


def test_names_are_put_into_one_spelling() -> None:
    found = checked("GET", f"{BASE}/wh/db/t-1/data/%64ay=2026%253A1/a+b%2bc%20%C3%BC~(1).parquet")
    assert found.path == "/lake/wh/db/t-1/data/day%3D2026%253A1/a%2Bb%2Bc%20%C3%BC~%281%29.parquet"


@pytest.mark.parametrize(
    "uri",
    [
        "https://s3.eu-central-1.amazonaws.com/lake/wh/db/t-1/a",
        "https://s3.amazonaws.com/lake/wh/db/t-1/a",
        "https://lake.s3.eu-central-1.amazonaws.com/wh/db/t-1/a",
        "https://lake.s3.amazonaws.com/wh/db/t-1/a",
        "https://lake.s3.dualstack.us-gov-west-1.amazonaws.com/wh/db/t-1/a",
        "https://LAKE.S3.amazonaws.com:443/wh/db/t-1/a",
    ],
)
def test_amazon_is_known_by_path_and_by_host(uri: str) -> None:
    assert checked("GET", uri, endpoint=AMAZON).path.endswith("/wh/db/t-1/a")


@pytest.mark.parametrize(
    "uri",
    [
        "http://lake.s3.amazonaws.com/wh/db/t-1/a",
        "https://other.s3.amazonaws.com/wh/db/t-1/a",
        "https://evil.lake.s3.amazonaws.com/wh/db/t-1/a",
        "https://lake.s3.amazonaws.com.evil.example/wh/db/t-1/a",
        "https://lake.s3-evil.amazonaws.com.evil/wh/db/t-1/a",
        "https://lakeXs3.amazonaws.com/wh/db/t-1/a",
        "https://s3.amazonaws.com/other/wh/db/t-1/a",
        "https://lake.s3.amazonaws.com:8443/wh/db/t-1/a",
    ],
)
def test_what_is_not_amazon_or_not_the_bucket_is_not_signed(uri: str) -> None:
    with pytest.raises(NotSigned):
        checked("GET", uri, endpoint=AMAZON)


def test_an_endpoint_of_ones_own_is_known_in_its_own_style_alone() -> None:
    by_host, by_path = "http://lake.minio.example:9000/wh/db/t-1/a", "http://minio.example:9000/lake/wh/db/t-1/a"
    virtual = Endpoint("http://minio.example:9000", virtual=True)
    assert checked("GET", by_host, endpoint=virtual).path == "/wh/db/t-1/a"
    assert checked("GET", by_path).path == "/lake/wh/db/t-1/a"
    for uri, endpoint in ((by_host, OWN), (by_path, virtual)):
        with pytest.raises(NotSigned, match="host or bucket"):
            checked("GET", uri, endpoint=endpoint)
    below = Endpoint("https://gate.example/s3")
    assert checked("GET", "https://gate.example/s3/lake/wh/db/t-1/a", endpoint=below).path == "/s3/lake/wh/db/t-1/a"
    with pytest.raises(NotSigned):
        checked("GET", "https://gate.example/lake/wh/db/t-1/a", endpoint=below)


@pytest.mark.parametrize(
    "header",
    [
        "x_amz_copy_source",
        "x_amz_copy_source_range",
        "x_amz_acl",
        "x_amz_grant_read",
        "x_amz_object_lock_mode",
        "x_amz_bypass_governance_retention",
        "x_amz_website_redirect_location",
        "x_amz_something_new",
    ],
)
def test_t_vend_6_headers_that_copy_or_let_others_in_are_not_signed(header: str) -> None:
    headers: Any = {header: "public-read"}
    with pytest.raises(NotSigned, match="x-amz-"):
        checked("PUT", FILE, **headers)


def test_headers_are_signed_or_passed_on_and_keys_of_the_client_are_replaced() -> None:
    found = checked(
        "PUT",
        FILE,
        content_type="text/plain",
        x_amz_server_side_encryption="AES256",
        x_amz_checksum_crc32="abc",
        if_none_match="*",
        user_agent="test",
        authorization="AWS4 somebody",
        x_amz_date="19700101T000000Z",
        x_amz_security_token="stolen",
        host="evil.example",
        amz_sdk_invocation_id="1",
    )
    assert found.signed == {
        "content-type": "text/plain",
        "x-amz-server-side-encryption": "AES256",
        "x-amz-checksum-crc32": "abc",
        "host": "minio.example:9000",
        "x-amz-content-sha256": "UNSIGNED-PAYLOAD",
    }
    assert found.unsigned == {"if-none-match": "*", "user-agent": "test"}


def test_a_body_signed_in_parts_is_refused_and_one_with_a_trailer_is_not() -> None:
    with pytest.raises(NotSigned, match="in parts"):
        checked("PUT", FILE, x_amz_content_sha256="STREAMING-AWS4-HMAC-SHA256-PAYLOAD")
    trailer = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
    assert checked("PUT", FILE, x_amz_content_sha256=trailer).payload_hash == trailer


def test_the_body_of_a_client_of_botocore_is_signed_as_it_comes() -> None:
    """PyIceberg lets botocore make its requests unsigned, and has them signed before they are sent."""
    s3 = boto3.client("s3", region_name="eu-central-1", config=Config(signature_version=UNSIGNED))
    seen: list[ToSign] = []

    class NotSent(Exception):
        pass

    def sign(request: Any, **_: Any) -> None:
        headers = {name: value if isinstance(value, str) else value.decode() for name, value in request.headers.items()}
        asked = {name: [value] for name, value in headers.items()}
        body = {"method": request.method, "region": "eu-central-1", "uri": request.url, "headers": asked}
        seen.append(to_sign(parse_sign_request(body), WRITER, AMAZON))
        raise NotSent

    s3.meta.events.register_last("before-sign.s3", sign)
    own = {"Bucket": "lake", "Key": "wh/db/t-1/data/a"}
    calls: list[Callable[[], object]] = [
        lambda: s3.put_object(**own, Body=b"PAR1"),
        lambda: s3.upload_part(**own, UploadId="u", PartNumber=1, Body=b"PAR1"),
        lambda: s3.get_object(**own),
    ]
    for call in calls:
        with pytest.raises(NotSent):
            call()
    put, part, get = seen
    for one in (put, part):
        assert one.signed["x-amz-trailer"] == "x-amz-checksum-crc32" and one.signed["content-encoding"] == "aws-chunked"
        assert one.payload_hash == one.signed["x-amz-content-sha256"] == "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
    assert get.payload_hash == "UNSIGNED-PAYLOAD"


@pytest.mark.parametrize("said", ["", "UNSIGNED-PAYLOAD", "0" * 64])
def test_a_body_in_chunks_is_not_signed_as_a_whole_one(said: str) -> None:
    with pytest.raises(NotSigned, match="in chunks"):
        checked("PUT", FILE, content_encoding="gzip, aws-chunked", x_amz_content_sha256=said)


# --- many deletions ---


def deletion(*keys: str, more: str = "") -> str:
    return "<Delete>" + "".join(f"<Object><Key>{key}</Key>{more}</Object>" for key in keys) + "</Delete>"


def test_a_deletion_of_many_is_signed_with_the_hash_of_its_body() -> None:
    body = deletion("wh/db/t-1/a", "wh/db/t-1/data/b")
    spaced = body.replace("<Delete>", '<Delete xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Quiet>true</Quiet>')
    declared = f"<?xml version='1.0' encoding='UTF-8'?>{body}"
    for text in (body, spaced, declared):
        found = checked("POST", f"{BASE}?delete", body=text)
        assert found.payload_hash == sha256(text.encode()) == found.signed["x-amz-content-sha256"]
    with pytest.raises(NotSigned, match="right to write"):
        checked("POST", f"{BASE}?delete", READER, body=body)


@pytest.mark.parametrize(
    "body",
    [
        None,
        deletion("wh/db/t-1/a", "wh/db/t-2/a"),
        deletion("wh/db/t-1/../t-2/a"),
        deletion("wh/db/t-1/%2e%2e/t-2/a"),
        deletion(),
        deletion(*(f"wh/db/t-1/{number}" for number in range(1_001))),
        deletion("wh/db/t-1/a", more="<VersionId>1</VersionId>"),
        deletion("wh/db/t-1/a", more="<Key>wh/db/t-2/a</Key>"),
        '<!DOCTYPE d [<!ENTITY e "wh/db/t-2/a">]>' + deletion("&e;"),
        "<Delete><Other/></Delete>",
        "<Anything><Object><Key>wh/db/t-1/a</Key></Object></Anything>",
        "<Delete><Object x='1'><Key>wh/db/t-1/a</Key></Object></Delete>",
        "<Delete><Object><Key>wh/db/t-1/a<Key>wh/db/t-2/b</Key></Key></Object></Delete>",
        f"<Delete><Quiet><Object><Key>wh/db/t-2/b</Key></Object></Quiet>{deletion('wh/db/t-1/a')[8:]}",
        "<Delete><Object><Key>wh/db/t-1/a</Key>wh/db/t-2/b</Object></Delete>",
        "<Delete>wh/db/t-2/b<Object><Key>wh/db/t-1/a</Key></Object></Delete>",
        '<Delete><Object><Key xmlns="urn:other">wh/db/t-1/a</Key></Object></Delete>',
        '<?xml version="1.0" encoding="UTF-7"?>' + deletion("wh/db/t-1/a+ADw-/Key+AD4-"),
        "<?other?>" + deletion("wh/db/t-1/a"),
        deletion("wh/db/t-1/<?other?>a"),
    ],
)
def test_a_deletion_of_anything_else_is_not_signed(body: str | None) -> None:
    with pytest.raises(NotSigned):
        checked("POST", f"{BASE}?delete", body=body)


@pytest.mark.parametrize(
    "document",
    [
        None,
        [],
        {},
        {"method": "GET", "uri": FILE, "region": "x"},
        {"method": "GET", "uri": FILE, "region": "x", "headers": {"a": "b"}},
        {"method": "GET", "uri": FILE, "region": "x", "headers": {"a": [1]}},
        {"method": "GET", "uri": FILE, "region": "x", "headers": {"a": ["b\r\nc: d"]}},
        {"method": "GET", "uri": FILE, "region": "x", "headers": {"a": ["1"], "A": ["2"]}},
        {"method": "GET", "uri": FILE, "region": "x", "headers": {}, "provider": "gs"},
        {"method": "GET", "uri": FILE, "region": "x", "headers": {}, "body": {}},
        {"method": "GET", "uri": 7, "region": "x", "headers": {}},
    ],
)
def test_a_request_that_makes_no_sense_is_refused(document: Any) -> None:
    with pytest.raises((Refusal, InvalidRequest)):
        parse_sign_request(document)
