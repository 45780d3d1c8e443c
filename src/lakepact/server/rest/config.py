"""What this server offers: `GET /v1/config`, the first request of every client."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from lakepact.catalog.overlay import closed
from lakepact.kernel.identity import parse_transaction_id
from lakepact.kernel.model import State
from lakepact.server.http import Request, Response, json_response
from lakepact.server.rest.door import Door
from lakepact.server.rest.errors import NoSuchWarehouse

_ENDS_WITH_TRANSACTION: Final = re.compile(r"@[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$")
"""A location may hold an `@` of its own; a transaction is recognised by its form."""

LOCATION: Final = "lakepact.warehouse-location"
"""Where the warehouse is: for jobs that read receipts by themselves."""


class ConfigHandler:
    def __init__(self, door: Door, *, idempotency_lifetime_s: int) -> None:
        self._door = door
        self._lifetime = _duration(idempotency_lifetime_s)
        self.endpoints: Sequence[str] = ()
        """Exactly what is served; filled in once the routes are known."""

        self.only_some: Mapping[str, Callable[[str], bool]] = {}
        """Endpoints that not every warehouse has: whether one has it."""

    async def show(self, request: Request) -> Response:
        principal = request.principal
        name, transaction = self._door.target(request, self._named(request))
        catalog = self._door.named(name, principal)
        prefix = name
        if transaction is not None:
            # A client that comes with a transaction stays in it: everything it asks later carries this prefix.
            transaction_id = parse_transaction_id(transaction)
            record = await catalog.transactions.load(transaction_id)
            if record is None or record.state is State.ABORTED:
                raise closed(transaction_id, record)
            prefix = f"{name}@{transaction_id}"
        return json_response(
            {
                "defaults": {LOCATION: catalog.warehouse.root},
                "overrides": {"prefix": prefix, "namespace-separator": self._door.separator},
                "endpoints": self._served_by(name),
                "idempotency-key-lifetime": self._lifetime,
            }
        )

    def _named(self, request: Request) -> str | None:
        """Return the `warehouse` of the query; a location is replaced by the name of the warehouse that has it."""
        warehouse = request.query.get("warehouse") or None
        if warehouse is None or "/" not in warehouse:
            return warehouse
        location, at, transaction = warehouse, "", ""
        if _ENDS_WITH_TRANSACTION.search(warehouse):
            location, at, transaction = warehouse.rpartition("@")
        visible = self._door.in_sight(request.principal)
        name = next((name for name, catalog in visible.items() if catalog.warehouse.contains(location)), None)
        if name is None:
            raise NoSuchWarehouse(
                f"no warehouse of this server has the location {location[:300]}; its warehouses are "
                + (", ".join(f"{name} ({visible[name].warehouse.root})" for name in sorted(visible)) or "none for you")
                + ". Use one of these names as the warehouse"
            )
        return f"{name}{at}{transaction}"

    def _served_by(self, warehouse: str) -> Sequence[str]:
        missing = {endpoint for endpoint, has in self.only_some.items() if not has(warehouse)}
        return [one for one in self.endpoints if one not in missing] if missing else self.endpoints


def _duration(seconds: int) -> str:
    """In the form of ISO 8601 that clients parse."""
    hours, rest = divmod(seconds, 3_600)
    minutes, seconds = divmod(rest, 60)
    parts = [f"{number}{unit}" for number, unit in ((hours, "H"), (minutes, "M"), (seconds, "S")) if number]
    return "PT" + ("".join(parts) or "0S")
