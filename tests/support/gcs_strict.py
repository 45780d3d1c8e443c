"""The dialect of Google's XML API: conditions are on the generation, which never repeats.

`x-goog-if-generation-match: 0` is put-if-absent; a generation that is not the current one, or no object at all, is 412.
"""

from __future__ import annotations

import hashlib
import sys
from typing import ClassVar

from tests.support.object_server import Answer, ObjectServer, Request


class GcsServer(ObjectServer):
    dialect: ClassVar[str] = "gcs"

    def apply(self, request: Request) -> Answer:
        if not request.headers.get("authorization", "").startswith("Bearer "):
            return self.error(401, "AuthenticationRequired")
        if not request.name:
            return self.listing(request) if request.method == "GET" else self.error(501, "NotImplemented")
        stored = self.objects.get((request.bucket, request.name))
        match request.method:
            case "PUT":
                return self._put(request)
            case _ if stored is None:
                return self.error(404, "NoSuchKey")
            case "GET" | "HEAD":
                return self.read(request, stored, {"x-goog-generation": str(stored.generation)})
            case "DELETE":
                del self.objects[request.bucket, request.name]
                return Answer(204)
            case _:
                return self.error(501, "NotImplemented")

    def _put(self, request: Request) -> Answer:
        stored = self.objects.get((request.bucket, request.name))
        wanted = self.conditions(request, "x-goog-if-generation-match")
        if wanted is not None and not wanted.isdigit():
            return self.error(400, "InvalidArgument")
        if wanted is not None and int(wanted) != (stored.generation if stored else 0):
            return self.error(412, "PreconditionFailed")
        e_tag = f'"{hashlib.md5(request.body, usedforsecurity=False).hexdigest()}"'
        written = self.store(request, e_tag)
        return Answer(200, {"ETag": written.e_tag, "x-goog-generation": str(written.generation)})


if __name__ == "__main__":
    with GcsServer().running() as server:
        print(server.url, flush=True)
        sys.stdin.read()
