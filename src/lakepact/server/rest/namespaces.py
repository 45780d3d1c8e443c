"""The namespace endpoints."""

from __future__ import annotations

from urllib.parse import unquote

from lakepact.catalog.errors import NoSuchNamespace
from lakepact.iceberg.errors import Malformed
from lakepact.iceberg.fields import json_object, text_list, text_map
from lakepact.limits import TABLE_PROPERTIES, check_namespace
from lakepact.server.http import Request, Response, json_response
from lakepact.server.rest.answers import empty, transaction_header
from lakepact.server.rest.door import Door, page_of


class NamespaceHandlers:
    def __init__(self, door: Door) -> None:
        self._door = door

    async def list(self, request: Request) -> Response:
        parent, scope = self._door.parent(request), self._door.scope(request)
        try:
            page = await scope.list_namespaces(parent, *page_of(request))
        except NoSuchNamespace:
            # PyIceberg encodes the parent twice.
            once_more = tuple(unquote(level) for level in parent)
            if once_more == parent:
                raise
            parent = once_more
            page = await scope.list_namespaces(parent, *page_of(request))
        namespaces = [[*parent, name] for name in page.names]
        return json_response({"namespaces": namespaces, "next-page-token": page.next_token})

    async def create(self, request: Request) -> Response:
        catalog = self._door.scope(request)
        body = json_object(request.json(), "create namespace")
        namespace = text_list(body, "namespace", "create namespace")
        check_namespace(namespace, "create namespace: 'namespace'")
        if not all(namespace):
            raise Malformed("create namespace: a level of 'namespace' is empty")
        properties = {} if body.get("properties") is None else text_map(body, "properties", "create namespace")
        TABLE_PROPERTIES.check(len(properties), "create namespace: 'properties'")
        done = await catalog.create_namespace(
            self._door.call(request, "createNamespace", catalog, body), namespace, properties
        )
        return json_response(done.result, headers=transaction_header(done))

    async def load(self, request: Request) -> Response:
        namespace = self._door.namespace(request)
        properties = await self._door.scope(request).load_namespace(namespace)
        return json_response({"namespace": namespace, "properties": properties})

    async def exists(self, request: Request) -> Response:
        await self._door.scope(request).load_namespace(self._door.namespace(request))
        return Response(204)

    async def drop(self, request: Request) -> Response:
        catalog = self._door.scope(request)
        done = await catalog.drop_namespace(
            self._door.call(request, "dropNamespace", catalog), self._door.namespace(request)
        )
        return empty(done)

    async def update_properties(self, request: Request) -> Response:
        catalog = self._door.scope(request)
        body = json_object(request.json(), "update properties")
        removals = [] if body.get("removals") is None else text_list(body, "removals", "update properties")
        updates = {} if body.get("updates") is None else text_map(body, "updates", "update properties")
        done = await catalog.update_namespace(
            self._door.call(request, "updateProperties", catalog, body),
            self._door.namespace(request),
            removals,
            updates,
        )
        return json_response(done.result, headers=transaction_header(done))
