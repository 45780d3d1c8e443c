"""S3 and STS behind a guard: moto keeps the objects and makes the keys, the guard lets nobody do more than they may.

moto checks signatures and a role's own policies if asked to, but neither resources, nor conditions, nor session
policies. So every request passes through here first. The guard knows one pair of keys that may do everything, and every
pair that STS has given out with the policy it was asked for with; it computes each signature anew with botocore, and
evaluates the policy (`Allow` and `Deny`, `Action`, `Resource`, `StringLike` on `s3:prefix`; anything else in one is an
error).
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import parse_qs, parse_qsl, unquote
from xml.etree import ElementTree

import aiohttp
import yarl
from aiohttp import web
from botocore.auth import S3SigV4Auth, SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from tests.support import moto_s3
from tests.support.waiting import PATIENCE_S

ROOT_KEY: Final = "LAKEPACTROOTKEY0"
ROOT_SECRET: Final = "root-secret-of-the-guard"
REGION: Final = "us-east-1"
ROLE: Final = "arn:aws:iam::123456789012:role/lakepact-tables"

_ALLOWED_SKEW_S: Final = 900
_KNOWN_FIELDS: Final = {"Effect", "Action", "Resource", "Condition"}
_NOT_PASSED: Final = {"transfer-encoding", "connection", "content-encoding", "date", "server"}


class Denied(Exception):
    def __init__(self, code: str, status: int = 403) -> None:
        super().__init__(code)
        self.code = code
        self.status = status


@dataclass(frozen=True, slots=True)
class Session:
    """Keys that STS has given out."""

    secret: str
    token: str
    policy: dict[str, Any]
    expires_s: float


@dataclass(slots=True)
class Guard:
    """What a test looks at, and what it may change."""

    bucket: str
    backend: str
    url: str = ""
    sessions: dict[str, Session] = field(default_factory=dict)
    """By access key."""

    assumed: list[dict[str, str]] = field(default_factory=list)
    """Every AssumeRole that was granted."""

    seen: list[tuple[str, str, str, int]] = field(default_factory=list)
    """Of every request to S3: access key, method, path, status."""

    sts_status: int = 200
    """Anything else: STS answers so."""

    lifetime_s: int | None = None
    """How long new sessions live, whatever STS was asked for."""

    hold_sts: threading.Event = field(default_factory=threading.Event)
    """STS answers once this is set, which it is unless a test clears it."""

    def options(self) -> dict[str, str]:
        """Of a warehouse whose server holds the keys to everything."""
        return {
            "endpoint": self.url,
            "region": REGION,
            "access_key_id": ROOT_KEY,
            "secret_access_key": ROOT_SECRET,
        }

    # --- a request ---

    async def handle(self, raw: web.Request, client: aiohttp.ClientSession) -> web.StreamResponse:
        body = await raw.read()
        try:
            if raw.path == "/" and raw.method == "POST":
                return await self._sts(raw, body, client)
            answer = await self._s3(raw, body, client)
        except Denied as denied:
            answer = _error(raw, denied)
        key = _credential(raw)[0] if "Authorization" in raw.headers else "nobody"
        self.seen.append((key, raw.method, raw.raw_path, answer.status))
        return answer

    async def _sts(self, raw: web.Request, body: bytes, client: aiohttp.ClientSession) -> web.Response:
        await asyncio.to_thread(self.hold_sts.wait, PATIENCE_S)
        if self.sts_status != 200:
            code = "AccessDenied" if self.sts_status == 403 else "InternalFailure"
            text = f"<ErrorResponse><Error><Code>{code}</Code><Message>as told</Message></Error></ErrorResponse>"
            return web.Response(status=self.sts_status, text=text)
        key, _ = _credential(raw)
        if key != ROOT_KEY:
            raise Denied("AccessDenied")
        _check_signature(raw, body, Credentials(ROOT_KEY, ROOT_SECRET), SigV4Auth)
        fields = dict(parse_qsl(body.decode()))
        assert fields["Action"] == "AssumeRole" and fields["RoleArn"] == ROLE, fields
        answer = await _passed_on(raw, body, client, self.backend)
        granted = answer.body
        assert isinstance(granted, bytes)
        found = {one.tag.rpartition("}")[2]: one.text or "" for one in ElementTree.fromstring(granted).iter()}
        self.sessions[found["AccessKeyId"]] = Session(
            found["SecretAccessKey"],
            found["SessionToken"],
            json.loads(fields["Policy"]),
            time.time() + (self.lifetime_s or int(fields["DurationSeconds"])),
        )
        self.assumed.append(fields)
        if self.lifetime_s is not None:
            ends = datetime.fromtimestamp(time.time() + self.lifetime_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            changed = re.sub(r"(<Expiration>)[^<]*", rf"\g<1>{ends}", granted.decode())
            return web.Response(text=changed, content_type="text/xml")
        return answer

    async def _s3(self, raw: web.Request, body: bytes, client: aiohttp.ClientSession) -> web.Response:
        if "Authorization" not in raw.headers:
            raise Denied("AccessDenied")
        key, _ = _credential(raw)
        if key == ROOT_KEY:
            _check_signature(raw, body, Credentials(ROOT_KEY, ROOT_SECRET), S3SigV4Auth)
        else:
            session = self.sessions.get(key)
            if session is None:
                raise Denied("InvalidAccessKeyId")
            if raw.headers.get("X-Amz-Security-Token") != session.token:
                raise Denied("InvalidToken", 400)
            if time.time() > session.expires_s:
                raise Denied("ExpiredToken", 400)
            _check_signature(raw, body, Credentials(key, session.secret, session.token), S3SigV4Auth)
            for action, resource, prefix in _asks(raw, body):
                if not allows(session.policy, action, resource, prefix):
                    raise Denied("AccessDenied")
        return await _passed_on(raw, body, client, self.backend)


def allows(policy: Mapping[str, Any], action: str, resource: str, prefix: str | None = None) -> bool:
    """Whether a policy lets this happen. What this evaluator does not know is an error, never a yes."""
    allowed = False
    for statement in policy["Statement"]:
        assert statement.keys() <= _KNOWN_FIELDS and statement["Effect"] in ("Allow", "Deny"), statement
        condition = statement.get("Condition", {})
        assert condition.keys() <= {"StringLike"} and condition.get("StringLike", {}).keys() <= {"s3:prefix"}, condition
        prefixes = condition.get("StringLike", {}).get("s3:prefix")
        if (
            any(_like(one, action) for one in _many(statement["Action"]))
            and any(_like(one, resource) for one in _many(statement["Resource"]))
            and (prefixes is None or (prefix is not None and any(_like(one, prefix) for one in _many(prefixes))))
        ):
            if statement["Effect"] == "Deny":
                return False
            allowed = True
    return allowed


def _asks(raw: web.Request, body: bytes) -> Iterator[tuple[str, str, str | None]]:
    """What a request does: action, resource, prefix of a listing."""
    path, _, query_string = raw.raw_path.partition("?")
    query = parse_qs(query_string, keep_blank_values=True)
    bucket, _, key = unquote(path).removeprefix("/").partition("/")
    of_bucket, of_object = f"arn:aws:s3:::{bucket}", f"arn:aws:s3:::{bucket}/{key}"
    copied = raw.headers.get("x-amz-copy-source")
    if copied:
        yield "s3:GetObject", f"arn:aws:s3:::{unquote(copied).removeprefix('/')}", None
    if not key:
        if raw.method == "POST" and "delete" in query:
            for one in ElementTree.fromstring(body).iter():
                if one.tag.rpartition("}")[2] == "Key":
                    yield "s3:DeleteObject", f"{of_bucket}/{one.text}", None
        elif raw.method == "GET" and "location" in query:
            yield "s3:GetBucketLocation", of_bucket, None
        elif raw.method == "GET" and not query.keys() & {"uploads", "versions", "acl", "policy"}:
            yield "s3:ListBucket", of_bucket, query.get("prefix", [""])[0]
        elif raw.method == "HEAD":
            yield "s3:ListBucket", of_bucket, None
        else:
            raise Denied("AccessDenied")
        return
    if query.keys() & {"acl", "tagging", "retention", "legal-hold", "restore", "select"}:
        raise Denied("AccessDenied")
    match raw.method:
        case "GET" | "HEAD":
            yield "s3:ListMultipartUploadParts" if "uploadId" in query else "s3:GetObject", of_object, None
        case "PUT" | "POST":
            yield "s3:PutObject", of_object, None
        case "DELETE":
            yield "s3:AbortMultipartUpload" if "uploadId" in query else "s3:DeleteObject", of_object, None
        case _:
            raise Denied("MethodNotAllowed", 405)


def _check_signature(raw: web.Request, body: bytes, keys: Credentials, kind: type[Any]) -> None:
    header = raw.headers["Authorization"]
    _, scope = _credential(raw)
    _, region, service, _ = scope.split("/")
    named = _part(header, "SignedHeaders").split(";")
    moment = raw.headers["X-Amz-Date"]
    said = datetime.strptime(moment, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp()
    if abs(said - time.time()) > _ALLOWED_SKEW_S:
        raise Denied("RequestTimeTooSkewed")
    must = [name.lower() for name in raw.headers if name.lower().startswith("x-amz-")]
    if "host" not in named or any(name not in named for name in must):
        raise Denied("AccessDenied")
    payload = raw.headers.get("X-Amz-Content-SHA256", "")
    if re.fullmatch(r"[0-9a-f]{64}", payload) and payload != hashlib.sha256(body).hexdigest():
        raise Denied("XAmzContentSHA256Mismatch", 400)
    path, _, query = raw.raw_path.partition("?")
    # botocore takes the path as it is for S3, and the query as a URL has it.
    request = AWSRequest(raw.method, f"http://{raw.headers['Host']}{path}", data=body)
    request.params = dict(parse_qsl(query, keep_blank_values=True))
    for name in named:
        request.headers[name] = raw.headers[name]
    request.context["timestamp"] = moment
    signer = kind(keys, service, region)
    to_sign = signer.string_to_sign(request, signer.canonical_request(request))
    if signer.signature(to_sign, request) != _part(header, "Signature"):
        raise Denied("SignatureDoesNotMatch")


def _credential(raw: web.Request) -> tuple[str, str]:
    key, _, scope = _part(raw.headers["Authorization"], "Credential").partition("/")
    return key, scope


def _part(header: str, name: str) -> str:
    found = re.search(rf"{name}=([^,\s]+)", header)
    if found is None:
        raise Denied("AuthorizationHeaderMalformed", 400)
    return found[1]


def _many(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else list(value)


def _like(pattern: str, text: str) -> bool:
    """As IAM compares: `*` is anything, `?` is one character."""
    spelled = re.escape(pattern).replace(r"\*", ".*").replace(r"\?", ".")
    return re.fullmatch(spelled, text, re.DOTALL) is not None


def _error(raw: web.Request, denied: Denied) -> web.Response:
    text = f'<?xml version="1.0" encoding="UTF-8"?><Error><Code>{denied.code}</Code><Message>denied</Message></Error>'
    return web.Response(status=denied.status, text=text, content_type="application/xml")


async def _passed_on(raw: web.Request, body: bytes, client: aiohttp.ClientSession, backend: str) -> web.Response:
    headers = {name: value for name, value in raw.headers.items() if name.lower() != "transfer-encoding"}
    url = yarl.URL(backend + raw.raw_path, encoded=True)
    async with client.request(raw.method, url, headers=headers, data=body, allow_redirects=False) as answer:
        kept = {name: value for name, value in answer.headers.items() if name.lower() not in _NOT_PASSED}
        data = await answer.read()
        if raw.method != "HEAD":
            kept.pop("Content-Length", None)
        return web.Response(status=answer.status, headers=kept, body=data)


@contextmanager
def running(bucket: str = "lake") -> Iterator[Guard]:
    with moto_s3.running(bucket) as backend:
        guard = Guard(bucket, backend)
        guard.hold_sts.set()
        ready, stopping = threading.Event(), threading.Event()
        loop = asyncio.new_event_loop()
        ended: list[asyncio.Event] = []

        async def serve() -> None:
            ended.append(asyncio.Event())
            async with aiohttp.ClientSession(auto_decompress=False) as client:
                application = web.Application(client_max_size=256 * 1024 * 1024)

                async def handle(raw: web.Request) -> web.StreamResponse:
                    return await guard.handle(raw, client)

                application.router.add_route("*", "/{path:.*}", handle)
                runner = web.AppRunner(application, access_log=None, shutdown_timeout=0)
                await runner.setup()
                await web.TCPSite(runner, "127.0.0.1", 0).start()
                host, port = runner.addresses[0][:2]
                guard.url = f"http://{host}:{port}"
                ready.set()
                await ended[0].wait()
                await runner.cleanup()

        thread = threading.Thread(target=lambda: loop.run_until_complete(serve()), name="s3-guard", daemon=True)
        thread.start()
        if not ready.wait(PATIENCE_S):
            raise TimeoutError("the guard did not start")
        try:
            yield guard
        finally:
            guard.hold_sts.set()
            stopping.set()
            loop.call_soon_threadsafe(ended[0].set)
            thread.join(PATIENCE_S)
            loop.close()
