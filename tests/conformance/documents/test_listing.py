"""`list`: names that begin with a prefix and sort after a name, bytewise, in order, up to a limit."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from lakepact.kernel.ports import DocumentStore
from tests.support.s3_strict import S3Server
from tests.support.stores import KINDS, Place, opened_documents, s3_place

# `-` and `.` sort before `/`, digits and letters after it: a walk folder by folder gets these wrong.
NAMES = sorted(
    [
        "cells/main-old.json",
        "cells/main.json",
        "cells/main/names/a.json",
        "cells/main/names/a/b.json",
        "cells/main/names/a-b/c.json",
        "cells/main/names/a0.json",
        "cells/main/names/a_.json",
        "cells/main/names/a~0.json",
        "cells/main/names/a%2f.json",
        "cells/main/tables/1.json",
        "cells/main/tables/10.json",
        "cells/main/tables/2.json",
        "cells/main0/x.json",
        "cells/mainz.json",
        "transactions/2026/01/31/a.json",
        "transactions/2026/02/01/b.json",
    ]
)

PREFIXES = [
    "",
    "c",
    "cells",
    "cells/",
    "cells/main",
    "cells/main/",
    "cells/main/names/a",
    "cells/main/names/a/",
    "cells/main/names/a%",
    "cells/main/names/a-",
    "cells/main/tables/1",
    "cells/main/tables/1.json",
    "cells/mainz.json",
    "cells/none",
    "cells/none/",
    "transactions/2026/0",
    "u",
]


async def fill(documents: DocumentStore, names: list[str]) -> None:
    await asyncio.gather(*(documents.create(name, b"{}") for name in names))


async def listed(documents: DocumentStore, prefix: str, after: str | None = None, limit: int = 1_000) -> list[str]:
    return [entry.name for entry in await documents.list(prefix, after, limit)]


async def test_every_prefix_lists_what_begins_with_it_in_bytewise_order(documents: DocumentStore) -> None:
    await fill(documents, NAMES)

    for prefix in PREFIXES:
        assert await listed(documents, prefix) == [name for name in NAMES if name.startswith(prefix)], prefix


async def test_after_any_name_the_rest_follows(documents: DocumentStore) -> None:
    await fill(documents, NAMES)
    # Cursors need not be names of documents, nor inside the prefix.
    cursors = [*NAMES, "", "a", "cells/", "cells/main", "cells/main/names/a/", "cells/main/names/a/zzz", "cells0", "zz"]

    for prefix in ("", "cells/main", "cells/main/names/", "transactions/"):
        for after in cursors:
            expected = [name for name in NAMES if name.startswith(prefix) and name > after]
            assert await listed(documents, prefix, after) == expected, (prefix, after)


@pytest.mark.parametrize("limit", [1, 2, 5, 100])
async def test_pages_join_to_the_whole_and_only_the_last_is_short(documents: DocumentStore, limit: int) -> None:
    await fill(documents, NAMES)

    seen: list[str] = []
    page = await listed(documents, "cells/", None, limit)
    seen += page
    while len(page) == limit:
        page = await listed(documents, "cells/", page[-1], limit)
        seen += page

    assert seen == [name for name in NAMES if name.startswith("cells/")]


async def test_a_limit_of_nothing_is_nothing(documents: DocumentStore) -> None:
    await fill(documents, NAMES[:2])

    assert await listed(documents, "", None, 0) == []


async def test_a_listed_token_is_the_token_of_the_document(documents: DocumentStore) -> None:
    await fill(documents, NAMES[:3])

    for entry in await documents.list("", None, 10):
        document = await documents.get(entry.name)
        assert document is not None
        assert entry.token in (None, document.token)


async def test_listings_longer_than_a_page_of_the_provider_are_whole(place: Place) -> None:
    if place.server is not None:
        place.server.page_size = 7
    names = [f"cells/main/{number:03d}.json" for number in range(40)]
    async with opened_documents(place) as documents:
        await fill(documents, names)

        assert await listed(documents, "cells/main/") == names
        assert await listed(documents, "cells/main/", names[11], 20) == names[12:32]


@pytest.mark.parametrize("place", ["s3-strict", "gcs-strict"], indirect=True)
async def test_a_page_costs_one_request_however_late_it_is(place: Place) -> None:
    assert place.server is not None
    place.server.page_size = 10
    names = [f"cells/main/{number:03d}.json" for number in range(100)]
    async with opened_documents(place) as documents:
        await fill(documents, names)
        before = len(place.server.sent("GET"))

        assert await listed(documents, "cells/main/", names[79], 5) == names[80:85]

        assert len(place.server.sent("GET")) - before == 1


@pytest.mark.parametrize("place", [kind for kind in KINDS if kind not in ("memory", "file")], indirect=True)
async def test_only_our_own_prefix_of_the_bucket_is_listed(place: Place) -> None:
    neighbour = Place(place.kind, place.url + "-neighbour", place.options)
    async with opened_documents(place) as documents, opened_documents(neighbour) as other:
        await fill(documents, ["cells/a.json"])
        await fill(other, ["cells/b.json"])

        assert await listed(documents, "") == ["cells/a.json"]
        assert await listed(other, "") == ["cells/b.json"]


async def test_a_provider_that_lists_folder_by_folder_is_put_in_order(tmp_path: Path) -> None:
    # S3 directory buckets, which end in --x-s3, list in an order of their own. So do Azure accounts with a
    # hierarchical namespace, which Azurite has not.
    with S3Server(buckets=("lake--x-s3",)).running() as server:
        server.listing_key = lambda name: name.replace("/", "\0")
        server.page_size = 3
        place = s3_place("s3-directory", server.url, server)
        place = replace(place, url=place.url.replace("//lake/", "//lake--x-s3/"))
        async with opened_documents(place) as documents:
            await fill(documents, NAMES)

            for prefix in PREFIXES:
                assert await listed(documents, prefix) == [name for name in NAMES if name.startswith(prefix)], prefix
            for after in NAMES:
                expected = [name for name in NAMES if name > after][:4]
                assert await listed(documents, "", after, 4) == expected, after
