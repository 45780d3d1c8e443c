"""What this server offers: `GET /v1/config`, the first request of every client."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from lakepact.catalog.overlay import closed
from lakepact.kernel.identity import parse_transaction_id
from lakepact.kernel.model import State
from lakepact.server.http import Request, Response, json_response
from lakepact.server.rest.door import Door

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
        asked = request.query.get("warehouse") or self._door.default(principal)
        by_url = {catalog.warehouse.root: name for name, catalog in self._door.in_sight(principal).items()}
        name, at, named = by_url.get(asked.rstrip("/"), asked).partition("@")
        catalog = self._door.named(name, principal)
        prefix = name
        transaction = self._door.same_transaction(request, named if at else None)
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

    def _served_by(self, warehouse: str) -> Sequence[str]:
        missing = {endpoint for endpoint, has in self.only_some.items() if not has(warehouse)}
        return [one for one in self.endpoints if one not in missing] if missing else self.endpoints


def _duration(seconds: int) -> str:
    """In the form of ISO 8601 that clients parse."""
    hours, rest = divmod(seconds, 3_600)
    minutes, seconds = divmod(rest, 60)
    parts = [f"{number}{unit}" for number, unit in ((hours, "H"), (minutes, "M"), (seconds, "S")) if number]
    return "PT" + ("".join(parts) or "0S")
