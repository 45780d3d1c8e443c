"""gzip and JSON from outside: right for every input, linear in its size, and within the limits."""

from __future__ import annotations

import gzip
import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from lakepact import bounded_input
from lakepact.bounded_input import (
    BadGzip,
    DuplicateMember,
    TooLarge,
    gunzip,
    parse_document,
    parse_embedded,
    parse_request,
)
from lakepact.catalog.idempotency import request_hash
from lakepact.limits import GZIP_MEMBERS, JSON_DEPTH, JSON_MEMBERS, JSON_VALUES, LimitExceeded
from tests.unit.test_limits import assert_linear

_TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
_SCALARS = st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.floats(allow_nan=False), _TEXT)
_JSON = st.recursive(
    _SCALARS.filter(lambda one: one not in (float("inf"), float("-inf"))),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(_TEXT, inner, max_size=4)),
    max_leaves=25,
)

# --- gzip ---


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=6))
def test_members_come_out_one_behind_the_other(parts: list[bytes]) -> None:
    assert gunzip(b"".join(map(gzip.compress, parts)), 10_000, "it") == b"".join(parts)


def test_members_across_chunks_come_out_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    data = b"".join(gzip.compress(bytes([number]) * 100) for number in range(50))
    for chunk in (1, 2, 7, 30, 1_000):
        monkeypatch.setattr(bounded_input, "_CHUNK_BYTES", chunk)
        assert gunzip(data, 10_000, "it") == b"".join(bytes([number]) * 100 for number in range(50))


def test_what_is_not_gzip_too_large_or_too_many_is_refused() -> None:
    whole = gzip.compress(b"x" * 1_000)
    for bad in (b"no", whole[:-1], whole[:10], whole + b"no", whole + b"\0\0"):
        with pytest.raises(BadGzip):
            gunzip(bad, 10_000, "it")
    assert gunzip(whole + b"\0\0", 10_000, "it", padded=True) == b"x" * 1_000
    assert gunzip(whole, 1_000, "it") == b"x" * 1_000
    with pytest.raises(TooLarge):
        gunzip(whole, 999, "it")
    with pytest.raises(LimitExceeded, match=GZIP_MEMBERS.name):
        gunzip(gzip.compress(b"") * (GZIP_MEMBERS.most + 1), 10_000, "it")


def test_many_members_take_linear_time() -> None:
    one = gzip.compress(b"")
    assert_linear(lambda size: gunzip(one * size, 10, "it"), GZIP_MEMBERS.most // 4)


# --- JSON ---


@given(_JSON, st.sampled_from([None, 2]), st.booleans())
def test_a_body_is_read_as_the_parser_reads_it(document: Any, indent: int | None, ascii: bool) -> None:
    body = json.dumps(document, indent=indent, ensure_ascii=ascii).encode()
    assert parse_request(body) == orjson.loads(body)
    assert parse_request(orjson.dumps(document)) == orjson.loads(orjson.dumps(document))


@given(_JSON)
def test_the_slow_parsers_read_what_the_fast_one_reads(document: Any) -> None:
    body = orjson.dumps({"a": [document, document], "b": document})
    with pytest.MonkeyPatch.context() as patch:
        for limit in ("_VALUES_AT_ONCE", "LARGE_METADATA_BYTES"):
            patch.setattr(bounded_input, limit, 0)
        assert orjson.dumps(parse_request(body)) == orjson.dumps(parse_document(body)) == body
        assert orjson.dumps(parse_embedded(body.decode(), "it")) == body


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[1,]",
        b'{"a":1,}',
        b'{"a" 1}',
        b'{"a":NaN}',
        b'{"a":[1 2]}',
        b"[] []",
        b'["\\ud800"]',
        b'{"a":"\xff"}',
        b"[1e999]",
    ],
)
def test_what_the_fast_parser_refuses_the_slow_ones_refuse_too(body: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in ("_VALUES_AT_ONCE", "LARGE_METADATA_BYTES"):
        monkeypatch.setattr(bounded_input, limit, -1)
    for parse in (parse_request, parse_document):
        with pytest.raises(ValueError):
            parse(body)


@given(_TEXT, _JSON, _JSON, st.sampled_from([(",", ":"), (", ", ": "), (" , ", " :\t")]), st.booleans())
def test_a_member_that_comes_twice_is_refused(name: str, one: Any, two: Any, spaces: Any, ascii: bool) -> None:
    comma, colon = spaces
    texts = [json.dumps(part, ensure_ascii=ascii) for part in (name, one, two)]
    twice = f"{{{texts[0]}{colon}{texts[1]}{comma}{texts[0]}{colon}{texts[2]}}}"
    for body in (twice, f'[1{comma}{{"x"{colon}{twice}}}]'):
        with pytest.raises(DuplicateMember, match="two members named"):
            parse_request(body.encode())


@pytest.mark.parametrize(
    "body",
    [b'{"a":1,"\\u0061":2}', b'{"a":1E5,"a":100000000}', b'{"a b":1,"ab":2,"a b":3}', b'[{"a":"\\/","a":"//"}]'],
)
def test_other_spellings_do_not_hide_a_member_that_comes_twice(body: bytes) -> None:
    with pytest.raises(DuplicateMember):
        parse_request(body)


def test_names_that_differ_in_spaces_are_different_members() -> None:
    assert parse_request(b'{ "a b" : 1, "ab" : 2 }') == {"a b": 1, "ab": 2}


@given(st.lists(_TEXT | st.sampled_from(['"', "\\", '\\"', ",[{", '",["']), max_size=20), st.integers(1, 9))
def test_values_are_counted_outside_of_strings(texts: list[str], chunk: int) -> None:
    body = json.dumps([{text: text} for text in texts]).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bounded_input, "_CHUNK_BYTES", chunk)
        left = b"".join(bounded_input._outside_strings(body))
    assert left == b"[" + b", ".join([b"{: }"] * len(texts)) + b"]"


def test_values_and_members_have_limits() -> None:
    parse_request(b"[" + b"1," * (JSON_VALUES.most - 2) + b"1]")
    with pytest.raises(LimitExceeded, match=JSON_VALUES.name):
        parse_request(b"[" + b"1," * JSON_VALUES.most + b"1]")
    # Commas inside of strings do not count.
    parse_request(b'["' + b"," * (2 * JSON_VALUES.most) + b'"]')
    members = b",".join(b'"%d":1' % number for number in range(JSON_MEMBERS.most + 1))
    with pytest.raises(LimitExceeded, match=JSON_MEMBERS.name):
        parse_request(b"{" + members + b"}")
    for parse in (parse_request, lambda body: parse_embedded(body.decode(), "it")):
        parse(b"[" * JSON_DEPTH.most + b"]" * JSON_DEPTH.most)
        with pytest.raises(LimitExceeded, match=JSON_DEPTH.name):
            parse(b"[" * (JSON_DEPTH.most + 1) + b"]" * (JSON_DEPTH.most + 1))


def test_an_object_with_too_many_members_is_not_parsed_to_its_end() -> None:
    members = b",".join(b'"%x":1' % number for number in range(450_000))
    with pytest.raises(LimitExceeded, match=JSON_MEMBERS.name):
        parse_request(b"{" + members + b", this is not JSON")


@pytest.mark.parametrize(
    "piece", [b'\\"', b"\\\\", b'""', b"[],", b'{"a":1},', b"1,", b" ", b'"a,",', b"\xc3\xa9", b"["]
)
def test_bodies_of_one_piece_again_and_again_take_linear_time(piece: bytes) -> None:
    def parse(size: int) -> None:
        for begin, end in ((b'["', b'"]'), (b"[", b"1]"), (b'"', b"")):
            try:
                parse_request(begin + piece * size + end)
            except (ValueError, LimitExceeded, RecursionError):
                continue

    # Both sizes are parsed in the same way: a document with more values is parsed in steps.
    assert_linear(parse, 20_000)


# --- the hash of a request ---


@given(_JSON)
def test_the_hash_of_a_request_is_that_of_its_canonical_form(body: Any) -> None:
    def canonical(value: Any) -> Any:
        match value:
            case bool():
                return value
            case int() if abs(value) >= 2**53:
                return {"integer": str(value)}
            case list():
                return [canonical(one) for one in value]
            case dict():
                return {name: canonical(one) for name, one in value.items()}
            case _:
                return value

    whole = {"scope": {"a": None}, "method": "POST", "path": ["v1"], "query": {}, "body": canonical(body)}
    hashed = request_hash(scope={"a": None}, method="POST", path=["v1"], query={}, body=body)
    assert hashed == hashlib.sha256(rfc8785.dumps(whole)).hexdigest()


# --- memory ---

_READ_WITH_LITTLE_MEMORY = """
import asyncio, resource, sys
from pathlib import Path
from lakepact.catalog.files import MetadataFiles
from lakepact.catalog.warehouse import Warehouse
from lakepact.errors import OutOfMemory
from lakepact.stores.memory import MemoryBlobs

async def main():
    text = b'{"format-version":2,"x":[' + b','.join(b'{"a":[%d]}' % n for n in range(400_000)) + b']}'
    blobs = MemoryBlobs()
    await blobs.put("t/1.json", text)
    files = MetadataFiles(Warehouse("w", "memory://w"), blobs, 0, look_every_time=False)
    used = int(next(line for line in open("/proc/self/status") if line.startswith("VmSize")).split()[1]) << 10
    resource.setrlimit(resource.RLIMIT_AS, (used + (40 << 20), -1))
    try:
        await files.table("memory://w/t/1.json")
    except OutOfMemory as error:
        print(error)

asyncio.run(main())
"""


def test_too_little_memory_for_a_metadata_file_is_not_called_damage(tmp_path: Path) -> None:
    ran = subprocess.run([sys.executable, "-c", _READ_WITH_LITTLE_MEMORY], capture_output=True, text=True)
    assert "not enough free memory" in ran.stdout, ran.stdout + ran.stderr
    assert "the file is not damaged" in ran.stdout
