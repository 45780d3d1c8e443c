"""When the storm is over: is all there that was answered with 2xx, once, and nothing of what was refused?"""

from __future__ import annotations

import http.client
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import orjson

from tests.bench.storm.bad import MARK

_MOST_KEYS: Final = 5_000
"""Of each kind, evenly spread over the whole storm."""

_ENDED_BADLY: Final = re.compile(rb'"level": ?"error"|Traceback \(most recent call last\)|Exception in ')
_FAILED: Final = re.compile(rb'^lakepact_requests_total\{.*status_class="5xx".*\} ([1-9].*)$', re.MULTILINE)


class Operator:
    """Who made the clients' tokens, and may look at everything."""

    def __init__(self, url: str, token: str) -> None:
        self._token = token
        self._connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)

    def send(self, method: str, path: str, body: Any = None, token: str = "") -> tuple[int, bytes]:
        headers = {"Authorization": f"Bearer {token or self._token}"}
        self._connection.request(method, path, None if body is None else orjson.dumps(body), headers)
        answer = self._connection.getresponse()
        return answer.status, answer.read()

    def get(self, path: str) -> tuple[int, bytes]:
        return self.send("GET", path)

    def document(self, path: str, body: Any = None) -> Any:
        status, found = self.send("GET" if body is None else "POST", path, body)
        assert status == 200, (path, status, found[:500])
        return orjson.loads(found)


@dataclass(frozen=True, slots=True)
class Proof:
    operator: Operator

    def of_tables(self, expected: Sequence[dict[str, Any]]) -> None:
        """Every table is what its client was told, version by version."""
        namespaces = [one[0] for one in self.operator.document("/v1/main/namespaces")["namespaces"]]
        assert sorted(namespaces) == sorted(["secret", "shared", *(one["namespace"] for one in expected)])
        for one in expected:
            at = f"/v1/main/namespaces/{one['namespace']}/tables"
            listed = {found["name"] for found in self.operator.document(at)["identifiers"]}
            assert listed == set(one["tables"]), (one["namespace"], listed)
            for name, table in one["tables"].items():
                metadata = self.operator.document(f"{at}/{name}")["metadata"]
                where = f"{one['namespace']}.{name}"
                assert [found["snapshot-id"] for found in metadata.get("snapshots", ())] == table["snapshots"], where
                assert metadata["last-sequence-number"] == len(table["snapshots"]), where
                assert len(metadata["metadata-log"]) == table["versions"], where
                assert metadata["properties"] == table["properties"], where
        hot = self.operator.document("/v1/main/namespaces/shared/tables/hot")["metadata"]["properties"]
        assert {name: hot[name] for name in hot if name in namespaces} == {
            one["namespace"]: str(one["hot"]) for one in expected if one["hot"]
        }
        for path in ("shared/tables/t", "secret/tables/t"):
            assert MARK not in self.operator.document(f"/v1/main/namespaces/{path}")["metadata"]["properties"], path

    def of_keys(self, applied: Sequence[str], refused: Sequence[str]) -> None:
        """What each key tells is what was answered."""
        assert [key for key, times in Counter(applied).items() if times > 1] == []
        for key in _spread(applied):
            assert self.operator.document(f"/v1/main/transactions/{key}")["state"] == "committed", key
        for key in _spread(refused):
            status, body = self.operator.get(f"/v1/main/transactions/{key}")
            assert status == 404 or orjson.loads(body)["state"] in ("failed", "aborted"), (key, body[:500])

    def of_the_server(self, log: Path) -> None:
        """It has failed nowhere, not even where nobody waited for an answer."""
        assert self.operator.get("/readyz")[0] == 200
        failed = _FAILED.findall(self.operator.get("/metrics")[1])
        assert not failed, failed
        told = failure_in(log)
        assert told is None, told


def failure_in(log: Path) -> str | None:
    """The first one that the server tells of."""
    text = log.read_bytes()
    found = _ENDED_BADLY.search(text)
    return None if found is None else text[max(0, found.start() - 3_000) : found.end() + 3_000].decode(errors="replace")


def _spread(keys: Sequence[str]) -> Sequence[str]:
    return keys[:: max(1, -(-len(keys) // _MOST_KEYS))]
