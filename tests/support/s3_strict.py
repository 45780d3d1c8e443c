"""The S3 dialect: ETags are MD5 sums of the content, conditions are `If-None-Match: *` and `If-Match`.

Run it by itself with `python -m tests.support.s3_strict`, which prints the port it picked.
"""

from __future__ import annotations

import hashlib
import sys
from typing import ClassVar

from tests.support.object_server import Answer, ObjectServer, Request


class S3Server(ObjectServer):
    dialect: ClassVar[str] = "s3"

    def apply(self, request: Request) -> Answer:
        if not request.name:
            return self.listing(request) if request.method == "GET" else self.error(501, "NotImplemented")
        stored = self.objects.get((request.bucket, request.name))
        match request.method:
            case "PUT":
                return self._put(request)
            case "GET" | "HEAD":
                return self.error(404, "NoSuchKey") if stored is None else self.read(request, stored, {})
            case "DELETE":
                self.objects.pop((request.bucket, request.name), None)
                return Answer(204)
            case _:
                return self.error(501, "NotImplemented")

    def _put(self, request: Request) -> Answer:
        stored = self.objects.get((request.bucket, request.name))
        none_match = self.conditions(request, "if-none-match")
        match = self.conditions(request, "if-match")
        if none_match is not None and none_match != "*":
            return self.error(501, "NotImplemented")  # as S3 does
        if none_match == "*" and stored is not None:
            return self.error(412, "PreconditionFailed")
        if match is not None and stored is None:
            return self.error(404, "NoSuchKey")
        if match is not None and stored is not None and match != stored.e_tag:
            return self.error(412, "PreconditionFailed")
        e_tag = f'"{hashlib.md5(request.body, usedforsecurity=False).hexdigest()}"'
        return Answer(200, {"ETag": self.store(request, e_tag).e_tag})


if __name__ == "__main__":
    with S3Server().running() as server:
        server.latency_s = float(sys.argv[1]) if len(sys.argv) > 1 else 0.0
        print(server.url, flush=True)
        sys.stdin.read()
