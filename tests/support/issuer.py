"""An identity provider on this machine: its description, its keys, tokens as it would sign them, and a login page.

It can be made to fail in every way: `down` answers nothing good, `keys` can be anything, and everything asked of it is
counted. At its login it is strict, as a provider should be: it knows one client and its one address, wants PKCE, and
gives tokens for a code once.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qsl, quote_plus, urlencode, urlsplit

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
        self.forget()

    def forget(self) -> None:
        """As good as new, with the same keys: to make these takes a while."""
        self.published: list[dict[str, Any]] = [_public(key) for key in (self.rsa, self.ec, self.ed)]
        self.body: bytes | None = None
        """What is sent in the place of the key set."""

        self.down = False
        self.asked: list[str] = []
        self.says: dict[str, Any] = {}
        """What its description has beside the rest, or instead. None: it leaves that out."""

        self.client = Registered()
        self.login_claims: dict[str, Any] = {}
        """What its ID tokens say beside the rest, or instead."""

        self.token_answer: tuple[int, bytes] | None = None
        """What is answered to every code."""

        self._codes: dict[str, dict[str, str]] = {}

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

    @property
    def description(self) -> dict[str, Any]:
        said = {
            "issuer": self.url,
            "jwks_uri": f"{self.url}/keys",
            "authorization_endpoint": f"{self.url}/authorize?realm=company",
            "token_endpoint": f"{self.url}/token",
            "end_session_endpoint": f"{self.url}/logout",
            "token_endpoint_auth_methods_supported": ["client_secret_basic", "client_secret_post"],
            **self.says,
        }
        return {name: value for name, value in said.items() if value is not None}

    def approve(self, asked: dict[str, str], name: str = "alice") -> str:
        """Somebody has logged in at the page that a browser was sent to with this query: where it is sent back to."""
        assert asked["response_type"] == "code" and "openid" in asked["scope"].split(), asked
        assert asked["code_challenge_method"] == "S256" and len(asked["code_challenge"]) == 43, asked
        assert (asked["client_id"], asked["redirect_uri"]) == (self.client.id, self.client.redirect_uri), asked
        code = secrets.token_urlsafe(16)
        self._codes[code] = {**asked, "name": name}
        back = {"code": code, "state": asked["state"]}
        if self.says.get("authorization_response_iss_parameter_supported"):
            back["iss"] = self.url
        return f"{asked['redirect_uri']}?{urlencode(back)}"

    def redeem(self, form: dict[str, str], authorization: str) -> tuple[int, bytes]:
        """What the token endpoint answers to this form."""
        if self.token_answer is not None:
            return self.token_answer
        if not self.client.is_known_by(form, authorization):
            return 401, orjson.dumps({"error": "invalid_client"})
        begun = self._codes.pop(form.get("code", ""), None)
        proof = _encoded(hashlib.sha256(form.get("code_verifier", "").encode()).digest()).decode()
        if (
            begun is None
            or form["grant_type"] != "authorization_code"
            or form["redirect_uri"] != begun["redirect_uri"]
            or proof != begun["code_challenge"]
        ):
            return 400, orjson.dumps({"error": "invalid_grant", "error_description": "no such code"})
        said = {"aud": self.client.id, "sub": begun["name"], "nonce": begun["nonce"], **self.login_claims}
        answer = {"access_token": "opaque", "token_type": "Bearer", "id_token": self.token(**said)}
        return 200, orjson.dumps(answer)


@dataclass(slots=True)
class Registered:
    """The one client that the issuer knows."""

    id: str = "lakepact-web"
    redirect_uri: str = ""
    secret: str | None = None
    in_form: bool = False
    """How it has to show its secret."""

    def is_known_by(self, form: dict[str, str], authorization: str) -> bool:
        if self.secret is None:
            return form.get("client_id") == self.id and not authorization and "client_secret" not in form
        if self.in_form:
            return (form.get("client_id"), form.get("client_secret")) == (self.id, self.secret) and not authorization
        both = f"{quote_plus(self.id)}:{quote_plus(self.secret)}"
        return authorization == f"Basic {base64.b64encode(both.encode()).decode()}" and "client_secret" not in form


_LOGIN_PAGE: Final = """<!doctype html><html lang="en"><title>Company login</title><form action="/approve">{fields}
<label>Name <input name="name"></label> <button>Let me in</button></form></html>"""


def _fields(text: str) -> dict[str, str]:
    return dict(parse_qsl(text, keep_blank_values=True))


def _hidden(fields: dict[str, str]) -> str:
    return "".join(f'<input type="hidden" name="{escape(one)}" value="{escape(fields[one])}">' for one in fields)


def _encoded(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def _public(key: Key) -> dict[str, Any]:
    return dict(key.as_dict(private=False))


@contextmanager
def running_issuer() -> Iterator[Issuer]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            issuer.asked.append(self.path)
            place = urlsplit(self.path)
            if issuer.down:
                self.send_error(500)
            elif self.path == "/.well-known/openid-configuration":
                self._answer(200, orjson.dumps(issuer.description))
            elif self.path == "/keys":
                body = orjson.dumps({"keys": issuer.published}) if issuer.body is None else issuer.body
                self._answer(200, body)
            elif place.path == "/authorize":
                self._answer(200, _LOGIN_PAGE.format(fields=_hidden(_fields(place.query))).encode())
            elif place.path == "/approve":
                asked = _fields(place.query)
                self._answer(302, b"", Location=issuer.approve(asked, asked.pop("name")))
            elif place.path == "/logout":
                self._answer(302, b"", Location=_fields(place.query)["post_logout_redirect_uri"])
            else:
                self.send_error(404)

        def do_POST(self) -> None:
            issuer.asked.append(self.path)
            form = _fields(self.rfile.read(int(self.headers["Content-Length"])).decode())
            if issuer.down or self.path != "/token":
                self.send_error(500)
            else:
                self._answer(*issuer.redeem(form, self.headers.get("Authorization") or ""))

        def _answer(self, status: int, body: bytes, **headers: str) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
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
