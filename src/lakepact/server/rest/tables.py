"""The table endpoints, and the commit of many tables."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import replace
from typing import TypeVar

from lakepact.catalog import Done
from lakepact.catalog.errors import AnswerLost, MissingFile, NotFound
from lakepact.catalog.operations import Operations
from lakepact.catalog.pointers import DIGEST, Kind
from lakepact.errors import InvalidRequest, LakepactError
from lakepact.iceberg.errors import Malformed
from lakepact.iceberg.fields import boolean, filled_text, json_list, json_object
from lakepact.iceberg.requests import (
    Commit,
    Identifier,
    parse_commit_table,
    parse_commit_transaction,
    parse_create_table,
    parse_identifier,
)
from lakepact.server.http import Request, Response, json_response
from lakepact.server.rest.answers import (
    ALL,
    REFS,
    Headers,
    commit_answer,
    empty,
    etag,
    many_answer,
    not_modified,
    staged_answer,
    table_answer,
    transaction_header,
)
from lakepact.server.rest.delta_requests import parse_delta_changes
from lakepact.server.rest.door import Door, flag, page_of
from lakepact.server.vending.delegation import Delegation, table_path
from lakepact.server.vending.scope import Home

T = TypeVar("T")


class TableHandlers:
    def __init__(self, door: Door, delegation: Delegation) -> None:
        self._door = door
        self._delegation = delegation

    async def list(self, request: Request) -> Response:
        namespace = self._door.namespace(request)
        page = await self._door.scope(request).list_tables(namespace, *page_of(request))
        identifiers = [{"namespace": namespace, "name": name} for name in page.names]
        return json_response({"identifiers": identifiers, "next-page-token": page.next_token})

    async def create(self, request: Request) -> Response:
        catalog, namespace = self._door.scope(request), self._door.namespace(request)
        body = request.json()
        wanted = await request.checked(parse_create_table, body)
        call = self._door.call(request, "createTable", catalog, body)
        identifier, path = Identifier(namespace, wanted.name), table_path(request.raw_path, wanted.name)
        if wanted.stage:
            metadata = await catalog.stage_table(namespace, wanted)
            home = Home.of_new(metadata, staged=True)
            return staged_answer(metadata, await self._delegation.asked(request, catalog, identifier, home, path))
        done = await catalog.create_table(call, namespace, wanted)
        return await self._table_answer(request, catalog, done, identifier, path)

    async def load(self, request: Request) -> Response:
        catalog = self._door.scope(request)
        snapshots = request.query.get("snapshots", ALL)
        if snapshots not in (ALL, REFS):
            raise InvalidRequest(f"snapshots is {ALL} or {REFS}, not {snapshots[:40]!r}")
        identifier = self._door.identifier(request, "table")
        pointer = await catalog.table(identifier)
        # Also for who has it already: a file that was taken away must not go unnoticed.
        file = await read_by_client(catalog.file_of(pointer))
        delegated = None
        if self._delegation.is_asked(request, catalog):
            home = Home.of(pointer, file.document)
            delegated = await self._delegation.asked(request, catalog, identifier, home, request.raw_path)
        tag = etag(file.location, snapshots, delegated.tag if delegated is not None else "")
        if seen_before(request, tag.decode()):
            return not_modified(tag)
        return table_answer(file, snapshots, delegated=delegated)

    async def exists(self, request: Request) -> Response:
        await self._door.scope(request).table(self._door.identifier(request, "table"))
        return Response(204)

    async def commit(self, request: Request) -> Response:
        catalog = self._door.scope(request)
        body = request.json()
        commit = at_path(await request.checked(parse_commit_table, body), self._door.identifier(request, "table"))
        done = await catalog.commit_table(self._door.call(request, "updateTable", catalog, body), commit)
        return commit_answer(await catalog.table_after(done), transaction_header(done))

    async def drop(self, request: Request) -> Response:
        catalog = self._door.scope(request)
        done = await catalog.drop(
            self._door.call(request, "dropTable", catalog),
            self._door.identifier(request, "table"),
            Kind.TABLE,
            purge=flag(request, "purgeRequested"),
        )
        return empty(done)

    async def rename(self, request: Request) -> Response:
        return await rename(self._door, request, "renameTable", Kind.TABLE)

    async def register(self, request: Request) -> Response:
        catalog, namespace = self._door.scope(request), self._door.namespace(request)
        body = json_object(request.json(), "register table")
        identifier = Identifier(namespace, filled_text(body, "name", "register table"))
        done = await catalog.register_table(
            self._door.call(request, "registerTable", catalog, body),
            identifier,
            filled_text(body, "metadata-location", "register table"),
            overwrite=False if body.get("overwrite") is None else boolean(body, "overwrite", "register table"),
        )
        tables = request.raw_path.rpartition("/")[0] + "/tables"
        return await self._table_answer(request, catalog, done, identifier, table_path(tables, identifier.name))

    async def unregister(self, request: Request) -> Response:
        catalog = self._door.scope(request)
        done = await catalog.unregister_table(
            self._door.call(request, "unregisterTable", catalog), self._door.identifier(request, "table")
        )
        return commit_answer(await catalog.table_after(done), transaction_header(done))

    async def report_metrics(self, request: Request) -> Response:
        """Reports are welcome and not kept. They come late, also for tables that have gone."""
        json_object(request.json(), "report")
        self._door.scope(request)
        return Response(204)

    async def commit_transaction(self, request: Request) -> Response:
        catalog = self._door.scope(request)
        body = request.json()
        delta = await request.checked(parse_delta_changes, body)
        # A commit of Delta tables alone need not mention others.
        iceberg = not delta or body.get("table-changes")
        commits = await request.checked(parse_commit_transaction, body) if iceberg else ()
        call = self._door.call(request, "commitTransaction", catalog, body)
        done = await (catalog.commit_delta(call, delta, commits) if delta else catalog.commit_tables(call, commits))
        if not prefers_representation(request):
            return empty(done)
        answer = {"commit-id": done.transaction_id, "results": done.result["results"]}
        return json_response(answer, headers=transaction_header(done))

    async def load_many(self, request: Request) -> Response:
        """Many tables as of one instant."""
        scope = self._door.scope(request)
        asked = await request.checked(_parse_batch, request.json())
        files = await read_by_client(scope.tables(asked))
        return many_answer([(one, file) for one, file in zip(asked, files, strict=True)])

    async def _table_answer(
        self, request: Request, catalog: Operations, done: Done, identifier: Identifier, path: str
    ) -> Response:
        file = await catalog.table_after(done)
        headers: Headers = transaction_header(done)
        if done.replayed and done.result.get(DIGEST) is None:
            # An older release has answered this first. What its file says by now nobody vouches for.
            return table_answer(file, headers=headers)
        try:
            home = Home.of_new(file.document)
            delegated = await self._delegation.asked(request, catalog, identifier, home, path)
        except LakepactError as error:
            # The table is there. An error must not sound as if it were not.
            raise AnswerLost(done.transaction_id, error) from error
        return table_answer(file, headers=headers, delegated=delegated)


def _parse_batch(value: object) -> list[Identifier]:
    """The tables of a batch load. A table that is named twice is refused: its metadata would be sent twice."""
    body = json_object(value, "batch load")
    identifiers: dict[Identifier, None] = {}
    for number, one in enumerate(json_list(body.get("identifiers"), "identifiers")):
        identifier = parse_identifier(one, f"identifiers[{number}]")
        if identifier in identifiers:
            name = ".".join((*identifier.namespace, identifier.name))
            raise Malformed(f"identifiers[{number}]: table {name} is named twice; name each table once")
        identifiers[identifier] = None
    return list(identifiers)


async def read_by_client(load: Awaitable[T]) -> T:
    """Answer a read whose metadata file is missing with 404: Iceberg's clients and its compatibility kit expect it.

    A read has no effect and no key, so nothing is given up because of it. Changes answer 500 (`MissingFile`).
    """
    try:
        return await load
    except MissingFile as error:
        raise NotFound(str(error)) from error


def seen_before(request: Request, tag: str) -> bool:
    """Whether If-None-Match names this tag. A proxy that compresses answers makes tags weak, which is fine here."""
    seen = request.header("if-none-match")
    return seen is not None and any(one.strip().removeprefix("W/") in (tag, "*") for one in seen.split(","))


def at_path(commit: Commit, identifier: Identifier) -> Commit:
    """A commit to the table or view of the path. If the body names one, it is the same one."""
    if commit.identifier is not None and commit.identifier != identifier:
        raise Malformed("the 'identifier' of the body is not the one of the path; send one of the two, or both alike")
    return replace(commit, identifier=identifier)


async def rename(door: Door, request: Request, operation: str, kind: Kind) -> Response:
    catalog = door.scope(request)
    body = json_object(request.json(), "rename")
    source = parse_identifier(body.get("source"), "rename: 'source'")
    target = parse_identifier(body.get("destination"), "rename: 'destination'")
    return empty(await catalog.rename(door.call(request, operation, catalog, body), source, target, kind))


def prefers_representation(request: Request) -> bool:
    prefer = request.header("prefer") or ""
    return "return=representation" in prefer.lower().replace(" ", "").replace('"', "").split(",")
