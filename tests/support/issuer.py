"""An identity provider on this machine: its description, its keys, and tokens as it would sign them.

It can be made to fail in every way: `down` answers nothing good, `keys` can be anything, and everything asked of it is
counted.
"""

from __future__ import annotations

import base64
import hmac
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

import orjson
from joserfc import jws
from joserfc.jwk import ECKey, Key, OKPKey, RSAKey

AUDIENCE: Final = "lakepact"


class Issuer:
    def __init__(self, url: str) -> None:
        self.url = url
        self.rsa = RSAKey.generate_key(2048, {"kid": "rsa", "use": "sig"})
        self.ec = ECKey.generate_key("P-256", {"kid": "ec", "alg": "ES256"})
        self.ed = OKPKey.generate_key("Ed25519", {"kid": "ed"})
        self.published: list[dict[str, Any]] = [_public(key) for key in (self.rsa, self.ec, self.ed)]
        self.body: bytes | None = None
        """What is sent in the place of the key set."""

        self.down = False
        self.asked: list[str] = []

    def claims(self, **more: Any) -> dict[str, Any]:
        now_s = int(time.time())
        said = {"iss": self.url, "aud": AUDIENCE, "sub": "alice", "iat": now_s, "exp": now_s + 300, **more}
        return {name: value for name, value in said.items() if value is not None}

    def token(
        self, claims: Any = None, *, key: Key | None = None, alg: str = "RS256", header: Any = None, **more: Any
    ) -> str:
        """A token that says this, signed with this key."""
        signing = key or self.rsa
        protected = {"alg": alg, "kid": signing.kid, **(header or {})}
        protected = {name: value for name, value in protected.items() if value is not None}
        said = self.claims(**more) if claims is None else claims
        payload = said if isinstance(said, bytes) else orjson.dumps(said)
        # By hand: the library would not sign everything that an attacker would.
        signed = b".".join(_encoded(one) for one in (orjson.dumps(protected), payload))
        return b".".join((signed, _encoded(jws.JWSRegistry.algorithms[alg].sign(signed, signing)))).decode()

    def with_shared_secret(self, secret: bytes, kid: str) -> str:
        """A token that is signed with a shared secret, such as the text of a public key."""
        header = orjson.dumps({"alg": "HS256", "kid": kid})
        signed = b".".join(_encoded(one) for one in (header, orjson.dumps(self.claims())))
        return b".".join((signed, _encoded(hmac.digest(secret, signed, "sha256")))).decode()

    def settings(self, **more: Any) -> dict[str, Any]:
        return {"auth": "tokens,oidc", "oidc_issuer": self.url, "oidc_audience": AUDIENCE, **more}


def _encoded(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def _public(key: Key) -> dict[str, Any]:
    return dict(key.as_dict(private=False))


@contextmanager
def running_issuer() -> Iterator[Issuer]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            issuer.asked.append(self.path)
            if issuer.down:
                self.send_error(500)
                return
            if self.path == "/.well-known/openid-configuration":
                body = orjson.dumps({"issuer": issuer.url, "jwks_uri": f"{issuer.url}/keys"})
            elif self.path == "/keys":
                body = orjson.dumps({"keys": issuer.published}) if issuer.body is None else issuer.body
            else:
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Nobody reads it."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    issuer = Issuer(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield issuer
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
