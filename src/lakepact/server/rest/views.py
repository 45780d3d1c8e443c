"""The view endpoints."""

from __future__ import annotations

from lakepact.catalog.pointers import Kind
from lakepact.iceberg.fields import filled_text, json_object
from lakepact.iceberg.requests import Identifier, parse_commit_view, parse_create_view
from lakepact.server.http import Request, Response, json_response
from lakepact.server.rest.answers import empty, transaction_header, view_answer
from lakepact.server.rest.door import Door, page_of
from lakepact.server.rest.tables import at_path, read_by_client, rename


class ViewHandlers:
    def __init__(self, door: Door) -> None:
        self._door = door

    async def list(self, request: Request) -> Response:
        namespace = self._door.namespace(request)
        page = await self._door.scope(request).list_views(namespace, *page_of(request))
        identifiers = [{"namespace": namespace, "name": name} for name in page.names]
        return json_response({"identifiers": identifiers, "next-page-token": page.next_token})

    async def create(self, request: Request) -> Response:
        catalog, namespace = self._door.scope(request), self._door.namespace(request)
        body = request.json()
        wanted = await request.checked(parse_create_view, body)
        done = await catalog.create_view(self._door.call(request, "createView", catalog, body), namespace, wanted)
        return view_answer(await catalog.view_after(done), transaction_header(done))

    async def load(self, request: Request) -> Response:
        catalog = self._door.scope(request)
        pointer = await catalog.view(self._door.identifier(request, "view"))
        return view_answer(await read_by_client(catalog.file_of(pointer)))

    async def exists(self, request: Request) -> Response:
        await self._door.scope(request).view(self._door.identifier(request, "view"))
        return Response(204)

    async def commit(self, request: Request) -> Response:
        catalog = self._door.scope(request)
        body = request.json()
        commit = at_path(await request.checked(parse_commit_view, body), self._door.identifier(request, "view"))
        done = await catalog.commit_view(self._door.call(request, "replaceView", catalog, body), commit)
        return view_answer(await catalog.view_after(done), transaction_header(done))

    async def drop(self, request: Request) -> Response:
        catalog = self._door.scope(request)
        done = await catalog.drop(
            self._door.call(request, "dropView", catalog), self._door.identifier(request, "view"), Kind.VIEW
        )
        return empty(done)

    async def rename(self, request: Request) -> Response:
        return await rename(self._door, request, "renameView", Kind.VIEW)

    async def register(self, request: Request) -> Response:
        catalog, namespace = self._door.scope(request), self._door.namespace(request)
        body = json_object(request.json(), "register view")
        done = await catalog.register_view(
            self._door.call(request, "registerView", catalog, body),
            Identifier(namespace, filled_text(body, "name", "register view")),
            filled_text(body, "metadata-location", "register view"),
        )
        return view_answer(await catalog.view_after(done), transaction_header(done))
