"""Every sentence of the `DocumentStore` contract, on every store."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest

from lakepact.kernel.keys import MAX_NAME_BYTES, key_of, name_of_cell
from lakepact.kernel.ports import Applied, DocumentStore, Refused, WriteOutcome
from tests.support.stores import KINDS, Place, opened_documents

ONE, TWO, THREE = b'{"writes":1}', b'{"writes":2}', b'{"writes":3}'


def token_of(outcome: WriteOutcome) -> str:
    assert isinstance(outcome, Applied), outcome
    return outcome.token


async def another(place: Place, documents: DocumentStore, stack: AsyncExitStack) -> DocumentStore:
    """A second store at the same place, as another process has it. Memory has no second process."""
    if place.kind == "memory":
        return documents
    return await stack.enter_async_context(opened_documents(place))


async def test_a_name_never_written_has_no_document(documents: DocumentStore) -> None:
    assert await documents.get("cells/none.json") is None


async def test_a_created_document_is_read_back_with_the_token_of_its_creation(documents: DocumentStore) -> None:
    token = token_of(await documents.create("cells/a.json", ONE))

    document = await documents.get("cells/a.json")

    assert document is not None
    assert (document.data, document.token) == (ONE, token)


async def test_a_second_create_is_refused_and_changes_nothing(documents: DocumentStore) -> None:
    token = token_of(await documents.create("cells/a.json", ONE))

    assert await documents.create("cells/a.json", TWO) == Refused()
    assert await documents.create("cells/a.json", ONE) == Refused()

    document = await documents.get("cells/a.json")
    assert document is not None
    assert (document.data, document.token) == (ONE, token)


async def test_a_swap_with_the_current_token_replaces_the_document(documents: DocumentStore) -> None:
    first = token_of(await documents.create("cells/a.json", ONE))

    second = token_of(await documents.swap("cells/a.json", first, TWO))

    document = await documents.get("cells/a.json")
    assert document is not None
    assert (document.data, document.token) == (TWO, second)
    assert second != first
    assert isinstance(await documents.swap("cells/a.json", second, THREE), Applied)


async def test_a_swap_with_an_outdated_token_is_refused_and_changes_nothing(documents: DocumentStore) -> None:
    first = token_of(await documents.create("cells/a.json", ONE))
    second = token_of(await documents.swap("cells/a.json", first, TWO))

    assert await documents.swap("cells/a.json", first, THREE) == Refused()
    assert await documents.swap("cells/a.json", first, ONE) == Refused()

    document = await documents.get("cells/a.json")
    assert document is not None
    assert (document.data, document.token) == (TWO, second)


async def test_a_swap_of_a_missing_document_is_refused(documents: DocumentStore) -> None:
    token = token_of(await documents.create("cells/a.json", ONE))

    assert await documents.swap("cells/other.json", token, TWO) == Refused()

    assert await documents.get("cells/other.json") is None


async def test_a_token_of_another_document_is_refused(documents: DocumentStore) -> None:
    await documents.create("cells/a.json", ONE)
    other = token_of(await documents.create("cells/b.json", TWO))

    assert await documents.swap("cells/a.json", other, THREE) == Refused()


async def test_an_old_token_is_valid_again_only_where_tokens_are_hashes(place: Place, documents: DocumentStore) -> None:
    first = token_of(await documents.create("cells/a.json", ONE))
    second = token_of(await documents.swap("cells/a.json", first, TWO))
    back = token_of(await documents.swap("cells/a.json", second, ONE))

    outcome = await documents.swap("cells/a.json", first, THREE)

    # This is why the kernel's documents count their writes: on S3 the bytes must never repeat.
    if place.tokens_repeat:
        assert back == first
        assert isinstance(outcome, Applied)
    else:
        assert back != first
        assert outcome == Refused()


async def test_bytes_that_never_repeat_have_tokens_that_never_repeat(documents: DocumentStore) -> None:
    tokens = [token_of(await documents.create("cells/a.json", b'{"writes":0}'))]
    for writes in range(1, 8):
        tokens.append(token_of(await documents.swap("cells/a.json", tokens[-1], b'{"writes":%d}' % writes)))

    assert len(set(tokens)) == len(tokens)
    for outdated in tokens[:-1]:
        assert await documents.swap("cells/a.json", outdated, b'{"writes":99}') == Refused()


async def test_a_write_is_visible_to_every_other_process(place: Place, documents: DocumentStore) -> None:
    async with AsyncExitStack() as stack:
        other = await another(place, documents, stack)

        first = token_of(await documents.create("cells/a.json", ONE))
        seen = await other.get("cells/a.json")
        assert seen is not None
        assert (seen.data, seen.token) == (ONE, first)
        assert [entry.name for entry in await other.list("cells/", None, 10)] == ["cells/a.json"]
        assert await other.create("cells/a.json", TWO) == Refused()

        second = token_of(await other.swap("cells/a.json", seen.token, TWO))
        assert await documents.swap("cells/a.json", first, THREE) == Refused()
        document = await documents.get("cells/a.json")
        assert document is not None
        assert (document.data, document.token) == (TWO, second)

        await other.delete("cells/a.json")
        assert await documents.get("cells/a.json") is None


@pytest.mark.parametrize("place", [kind for kind in KINDS if kind != "memory"], indirect=True)
async def test_what_was_written_is_there_when_the_store_is_opened_again(place: Place) -> None:
    async with opened_documents(place) as documents:
        token = token_of(await documents.create("cells/a.json", ONE))

    async with opened_documents(place) as documents:
        document = await documents.get("cells/a.json")

    assert document is not None
    assert (document.data, document.token) == (ONE, token)


async def test_a_deleted_document_is_gone_and_its_name_is_free(documents: DocumentStore) -> None:
    first = token_of(await documents.create("cells/a.json", ONE))

    await documents.delete("cells/a.json")

    assert await documents.get("cells/a.json") is None
    assert await documents.list("cells/", None, 10) == []
    assert await documents.swap("cells/a.json", first, TWO) == Refused()
    assert isinstance(await documents.create("cells/a.json", TWO), Applied)
    assert await documents.swap("cells/a.json", first, THREE) == Refused()


async def test_deleting_what_is_not_there_is_no_error(documents: DocumentStore) -> None:
    await documents.delete("cells/none.json")
    await documents.delete("never/a/folder.json")

    assert await documents.list("", None, 10) == []


@pytest.mark.parametrize("data", [b"", b"\x00\xff\r\n\x1a", b"x" * 1_048_576], ids=["empty", "binary", "one-MiB"])
async def test_any_bytes_come_back_as_they_went_in(documents: DocumentStore, data: bytes) -> None:
    token = token_of(await documents.create("cells/a.json", data))

    document = await documents.get("cells/a.json")

    assert document is not None
    assert (document.data, document.token) == (data, token)
    assert isinstance(await documents.swap("cells/a.json", token, b"x" + data), Applied)


ODD_KEYS = [
    key_of("main", "names", "Sales & Marketing", "Große Tabelle"),
    key_of("main", "names", "a/b", "100%"),
    key_of("main", "names", "..", "."),
    key_of("main", "names", "+ plus?#&=;", "~tilde~"),
    key_of("main", "names", "quote\"'<>&amp;", "back\\slash"),
    key_of("main", "names", "%2F", "%252F"),
    key_of("main", "names", "表", "🧊"),
    key_of("main", "tables", "0190a1b2-0000-7000-8000-000000000000"),
    key_of("main", "names", "n" * 200, "x" * 200),
]


async def test_every_name_a_key_can_have_is_its_own_document(documents: DocumentStore) -> None:
    names = [name_of_cell(key) for key in ODD_KEYS]
    assert len(set(names)) == len(names)
    for number, name in enumerate(names):
        token_of(await documents.create(name, b'{"number":%d}' % number))

    for number, name in enumerate(names):
        document = await documents.get(name)
        assert document is not None, name
        assert document.data == b'{"number":%d}' % number
        assert isinstance(await documents.swap(name, document.token, b'{"swapped":%d}' % number), Applied)
        assert [entry.name for entry in await documents.list(name, None, 2)] == [name]
    assert [entry.name for entry in await documents.list("", None, 100)] == sorted(names)


async def test_the_longest_name_is_a_document_like_any_other(documents: DocumentStore) -> None:
    name = "cells/" + "/".join(["s" * 177] * 5)
    name += "t" * (MAX_NAME_BYTES - len(name) - len(".json")) + ".json"
    assert len(name) == MAX_NAME_BYTES

    token = token_of(await documents.create(name, ONE))

    assert isinstance(await documents.swap(name, token, TWO), Applied)
    assert [entry.name for entry in await documents.list("cells/", None, 2)] == [name]
    await documents.delete(name)
    assert await documents.get(name) is None
