"""The cache of metadata files holds the files that are read, and not every version that was ever written."""

from __future__ import annotations

import orjson

from lakepact.catalog.files import MetadataFiles, digest_of
from lakepact.catalog.warehouse import Warehouse
from lakepact.stores.memory import MemoryBlobs

ROOT = "memory://lake"
METADATA = {
    "format-version": 2,
    "table-uuid": "9c12d441-03fe-4693-9a96-a0705ddf69c1",
    "location": f"{ROOT}/db/t",
    "last-sequence-number": 0,
    "last-updated-ms": 1,
    "last-column-id": 1,
    "schemas": [
        {"type": "struct", "schema-id": 0, "fields": [{"id": 1, "name": "id", "required": True, "type": "long"}]}
    ],
    "current-schema-id": 0,
    "partition-specs": [{"spec-id": 0, "fields": []}],
    "default-spec-id": 0,
    "last-partition-id": 999,
    "sort-orders": [{"order-id": 0, "fields": []}],
    "default-sort-order-id": 0,
    "properties": {},
}


def location(version: int) -> str:
    return f"{ROOT}/db/t/metadata/{version:05}.metadata.json"


async def test_versions_that_were_replaced_take_a_small_part_of_the_memory() -> None:
    files = MetadataFiles(Warehouse("w", ROOT), MemoryBlobs(), 1 << 20, look_every_time=False)
    for version in range(50):
        document = {"metadata-log": [{"metadata-file": location(version - 1)}], "filling": "x" * 1_000}
        text = orjson.dumps(document)
        assert await files.write(location(version), text, document, digest_of(text))
    held = [version for version in range(50) if files.holds(location(version))]
    assert held == list(range(held[0], 50)) and 5 <= len(held) <= 12


async def test_a_file_that_is_read_for_a_receipt_is_not_cached() -> None:
    blobs = MemoryBlobs()
    files = MetadataFiles(Warehouse("w", ROOT), blobs, 1 << 20, look_every_time=False)
    text = orjson.dumps(METADATA)
    await blobs.put("db/t/metadata/00000.metadata.json", text)
    assert (await files.table(location(0), look=False)).text == text
    assert not files.holds(location(0))
    await files.table(location(0))
    assert files.holds(location(0))


async def test_a_document_without_a_log_forgets_nothing() -> None:
    files = MetadataFiles(Warehouse("w", ROOT), MemoryBlobs(), 1 << 30, look_every_time=False)
    for version in range(3):
        assert await files.write(location(version), b"{}", {}, digest_of(b"{}"))
    assert all(files.holds(location(version)) for version in range(3))
