"""The start-up probe: a store that does not honour conditional writes is refused before anything depends on it.

Several S3-compatible servers and proxies accept `If-None-Match` and `If-Match`, ignore them, and answer 200. On such a
store every promise would be broken silently. So the kernel's whole need is tried out once on a document of our own.
A race is not tried: that a store is atomic under concurrency cannot be seen from a few requests.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from lakepact.errors import LakepactError, StoreUnavailable, StoreUnsuitable
from lakepact.kernel.ports import Applied, DocumentStore, Refused, Rng, Unknown, WriteOutcome

_FIRST: Final = b'{"probe":1}'
_SECOND: Final = b'{"probe":2}'
_THIRD: Final = b'{"probe":3}'


async def probe(documents: DocumentStore, rng: Rng) -> None:
    """Return if the store does what the protocol needs; raise StoreUnsuitable if it certainly does not.

    Raises StoreUnavailable if it gave no clean answer. The documents used are removed again.
    """
    folder = f"probe/{rng.bits(128):032x}"
    name, unused = f"{folder}/document", f"{folder}/unused"
    try:
        await _try_out(documents, name, unused)
    finally:
        for written in (name, unused):
            # A leftover is a few bytes under a name nobody reads; the verdict matters more.
            with suppress(LakepactError):
                await documents.delete(written)


async def _try_out(documents: DocumentStore, name: str, unused: str) -> None:
    if await documents.get(name) is not None:
        raise StoreUnsuitable(f"reading the fresh name {name} returned a document; is a cache or proxy answering?")

    first = _must_be_applied(await documents.create(name, _FIRST), "create a document")
    await _must_read(documents, name, _FIRST, first, "was created")
    _must_be_refused(
        await documents.create(name, _SECOND),
        "a second create of the same name was let through: the store ignores If-None-Match conditions",
    )
    await _must_read(documents, name, _FIRST, first, "was created, and created again in vain")

    second = _must_be_applied(await documents.swap(name, first, _SECOND), "swap a document with its current token")
    if second == first:
        raise StoreUnsuitable(
            f"the version token stayed {first!r} when the bytes changed, so swaps compare nothing. "
            f"Use a store whose ETags change with the content."
        )
    await _must_read(documents, name, _SECOND, second, "was swapped")
    _must_be_refused(
        await documents.swap(name, first, _THIRD),
        "a swap with an outdated token was let through: the store ignores If-Match conditions",
    )
    await _must_read(documents, name, _SECOND, second, "was swapped, and swapped again in vain")

    _must_be_refused(
        await documents.swap(unused, second, _THIRD),
        "a swap of a document that does not exist was let through: the store ignores If-Match conditions",
    )

    listed = [entry.name for entry in await documents.list(name, None, 10)]
    if listed != [name]:
        raise StoreUnsuitable(f"a document just written at {name} is not in the listing, which shows {listed}")


def _must_be_applied(outcome: WriteOutcome, action: str) -> str:
    match outcome:
        case Applied(token):
            return token
        case Refused():
            raise StoreUnsuitable(f"the store refused to {action}, although its condition held")
        case Unknown(reason):
            raise StoreUnavailable(f"the store could not be tried out; it did not {action}: {reason}")


def _must_be_refused(outcome: WriteOutcome, consequence: str) -> None:
    match outcome:
        case Refused():
            return
        case Applied():
            raise StoreUnsuitable(
                f"{consequence}. No promise could be kept on it. "
                f"Use a store with conditional writes, or one that does not sit behind a proxy that drops them."
            )
        case Unknown(reason):
            raise StoreUnavailable(f"the store could not be tried out; it gave no clean answer to a refusal: {reason}")


async def _must_read(documents: DocumentStore, name: str, data: bytes, token: str, what: str) -> None:
    document = await documents.get(name)
    if document is None:
        raise StoreUnsuitable(f"{name} {what}, and a read right after it found nothing: reads may be stale")
    if document.data != data:
        raise StoreUnsuitable(f"{name} {what}, and a read right after it found other bytes: reads may be stale")
    if document.token != token:
        raise StoreUnsuitable(
            f"{name} {what} with token {token!r}, and a read right after it gave {document.token!r}: "
            f"tokens of writes and reads must agree"
        )
