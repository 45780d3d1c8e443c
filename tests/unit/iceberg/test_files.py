"""The files of a table, found without any library of Avro or Iceberg, against what PyIceberg finds."""

from __future__ import annotations

import io
import random
import zlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from lakepact.errors import Unreadable
from lakepact.iceberg.avro import records
from lakepact.iceberg.files import (
    beside_metadata,
    collects,
    files_in,
    is_inside,
    manifest_lists,
    manifests_in,
    one_spelling,
)


def read(location: str) -> tuple[bytes, str]:
    return Path(location.removeprefix("file://")).read_bytes(), location


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("iceberg")
    catalog = SqlCatalog("files", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/warehouse")
    catalog.create_namespace("db")
    columns = {f"c{number}": list(range(40)) for number in range(12)}
    data = pa.table(
        {**columns, "text": [f"{'é' * 90}{number}" for number in range(40)], "none": pa.nulls(40, pa.int32())}
    )
    table = catalog.create_table("db.t", data.schema)
    for _ in range(3):
        table.append(data)
    table.delete("c0 < 10")
    return table


def test_every_file_is_found(table: Any) -> None:
    metadata = table.metadata.model_dump(by_alias=True)
    lists = manifest_lists(metadata)
    assert len(lists) == len(table.metadata.snapshots)
    manifests = {path for one in lists for path in manifests_in(*read(one))}
    assert manifests == set(table.inspect.all_manifests()["path"].to_pylist())
    found = {path for one in manifests for path in files_in(*read(one))}
    assert found == set(table.inspect.all_files()["file_path"].to_pylist())
    assert table.metadata_location in beside_metadata(table.metadata_location, metadata)


@pytest.mark.parametrize("codec", ["null", "deflate", "zstandard", "snappy"])
def test_every_codec_is_read(table: Any, codec: str) -> None:
    [one, *_] = sorted(manifest_lists(table.metadata.model_dump(by_alias=True)))
    data, where = read(manifests_in(*read(one))[0])
    plain = list(files_in(data, where))
    assert list(files_in(_recoded(data, codec), where)) == plain


@pytest.mark.parametrize("codec", ["deflate", "zstandard", "snappy"])
def test_a_small_block_that_becomes_huge_is_refused(codec: str) -> None:
    from lakepact.iceberg.avro import _MOST_BLOCK_BYTES, _decompressed

    huge = bytes(_MOST_BLOCK_BYTES + 1)
    with pytest.raises(Unreadable, match="has a block of more than"):
        _decompressed(codec, _compressed(codec, huge), "a manifest")
    assert _decompressed(codec, _compressed(codec, huge[:-1]), "a manifest") == huge[:-1]


def _compressed(codec: str, block: bytes) -> bytes:
    match codec:
        case "deflate":
            return zlib.compress(block)[2:-4]
        case "zstandard":
            return bytes(pa.compress(block, codec="zstd", asbytes=True))
        case "snappy":
            return bytes(pa.compress(block, codec="snappy", asbytes=True)) + zlib.crc32(block).to_bytes(4, "big")
        case _:
            return block


def _recoded(data: bytes, codec: str) -> bytes:
    """The same blocks under another codec."""
    from lakepact.iceberg.avro import _bytes, _decompressed, _long, _read_header

    about, position = _read_header(data, 4)
    sync = data[position : position + 16]
    position += 16
    out = io.BytesIO()
    out.write(b"Obj\x01")
    out.write(_zigzag(len(about)))
    for key, value in {**about, "avro.codec": codec.encode()}.items():
        out.write(_zigzag(len(key)) + key.encode() + _zigzag(len(value)) + value)
    out.write(_zigzag(0) + sync)
    while position < len(data):
        count, position = _long(data, position)
        block, position = _bytes(data, position)
        block = _decompressed(about["avro.codec"].decode(), block, "test")
        block = _compressed(codec, block)
        out.write(_zigzag(count) + _zigzag(len(block)) + block + sync)
        position += 16
    return out.getvalue()


def _zigzag(value: int) -> bytes:
    value <<= 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def test_a_damaged_file_is_refused_and_never_read_in_part(table: Any) -> None:
    [one, *_] = sorted(manifest_lists(table.metadata.model_dump(by_alias=True)))
    data, where = read(manifests_in(*read(one))[0])
    whole = list(files_in(data, where))
    rng = random.Random(3)
    refused = 0
    for _ in range(300):
        damaged = bytearray(data)
        if rng.random() < 0.5:
            del damaged[rng.randrange(4, len(damaged)) :]
        else:
            damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
        try:
            found = list(files_in(bytes(damaged), where))
        except (Unreadable, UnicodeDecodeError):
            refused += 1
        else:
            # A bit in a value that nobody asked for, or in a name itself.
            assert len(found) == len(whole) or not found
    assert refused > 150


def test_what_is_no_avro_file_is_refused() -> None:
    for data in (b"", b"PAR1", b"Obj\x01", b"Obj\x01\x00"):
        with pytest.raises(Unreadable, match="here"):
            list(records(data, {}, "here"))


@pytest.mark.parametrize(
    "spellings",
    [
        ("file:///a/b", "file:/a/b", "/a/b", "FILE:///a//b", "file:///a/b/"),
        ("s3://b/x/y", "s3a://b/x//y", "s3n://b/x/y"),
    ],
)
def test_one_file_has_one_spelling(spellings: tuple[str, ...]) -> None:
    assert len({one_spelling(one) for one in spellings}) == 1


def test_inside_is_by_whole_names() -> None:
    assert is_inside("s3://b/t/data/x", "s3://b/t") and not is_inside("s3://b/table/x", "s3://b/t")


def test_a_table_may_forbid_collection() -> None:
    assert collects({}) and collects({"properties": {"gc.enabled": "TRUE"}})
    assert not collects({"properties": {"gc.enabled": "False"}})
