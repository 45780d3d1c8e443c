"""What was dropped, and the way back; and all that files may be reachable from, for those who look for others."""

from __future__ import annotations

from typing import Any

from lakepact.catalog import Catalog
from lakepact.catalog.dropped import DroppedTable
from lakepact.catalog.pointers import DELTA, ICEBERG, Kind, identifier_json
from lakepact.errors import InvalidRequest
from lakepact.iceberg.fields import filled_text, json_object
from lakepact.iceberg.requests import parse_identifier
from lakepact.server.http import Request, Response, json_response
from lakepact.server.rest.answers import transaction_header
from lakepact.server.rest.door import Door, number, page_of


class DroppedHandlers:
    def __init__(self, door: Door) -> None:
        self._door = door

    async def list(self, request: Request) -> Response:
        """Without a page token all of it."""
        catalog = self._outside(request)
        token, size = page_of(request)
        found: list[dict[str, Any]] = []
        after = token
        while True:
            page = await catalog.dropped_page(after, size)
            found += [_shown(one, catalog) for one in page.tables]
            after = page.next_token
            if after is None or (token is not None and found):
                return json_response({"dropped": found, "next-page-token": after})

    async def reachable(self, request: Request) -> Response:
        catalog = self._outside(request)
        page = await catalog.reachable_page(request.query.get("pageToken"))
        return json_response(
            {
                "root": catalog.warehouse.root,
                # The search for orphans deletes by age.
                "now-ms": catalog.parts.clock.confirmed_ms(),
                "longest-transaction-ms": int(catalog.settings.longest_transaction_s * 1000),
                "reachable": [one.to_json() for one in page.items],
                "next-page-token": page.next_token,
            }
        )

    async def reachable_files(self, request: Request) -> Response:
        catalog = self._outside(request)
        keep_ms = number(request, "keep-ms") or 0
        # Never less than a transaction may look back.
        keep_ms = max(keep_ms, int(catalog.settings.longest_transaction_s * 1000))
        return json_response({"files": await catalog.reachable_files(request.params["table"], keep_ms)})

    async def undrop(self, request: Request) -> Response:
        catalog = self._outside(request)
        body = json_object(request.json(), "undrop")
        identifier = None if body.get("identifier") is None else parse_identifier(body["identifier"], "undrop")
        table_id = None if body.get("id") is None else filled_text(body, "id", "undrop")
        if identifier is None and table_id is None:
            raise InvalidRequest("undrop: name what shall come back, by 'identifier', by 'id', or by both")
        target = None if body.get("destination") is None else parse_identifier(body["destination"], "undrop")
        done = await catalog.undrop(
            self._door.call(request, "undropTable", catalog, body), identifier, table_id, target
        )
        return json_response(done.result, headers=transaction_header(done))

    def _outside(self, request: Request) -> Catalog:
        """What was dropped is nothing that a transaction sees."""
        if self._door.transaction(request) is not None:
            raise InvalidRequest("what was dropped is restored outside of transactions; send it without one")
        return self._door.catalog(request)


def _shown(one: DroppedTable, catalog: Catalog) -> dict[str, Any]:
    pointer, retention_ms = one.pointer, int(catalog.settings.drop_retention_s * 1000)
    return {
        "id": pointer.id,
        "kind": pointer.kind,
        "format": DELTA if pointer.kind is Kind.DELTA else ICEBERG,
        "identifier": identifier_json(pointer.identifier),
        "location": pointer.location,
        "metadata-location": pointer.metadata_location,
        "dropped-ms": one.dropped_ms,
        "retained-until-ms": one.dropped_ms + retention_ms,
        "purge": one.purge,
        "state": one.life(catalog.now_ms(), retention_ms),
    }
