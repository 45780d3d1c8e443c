"""Which requests to S3 are signed for whom: pure. What is not known here is refused.

A client sends the request that it would like to make. It is taken apart, compared with the table's folder, and put
together again in one spelling; that spelling is signed, and the client sends that one. So there is nothing in a request
that S3 could read in another way than it was read here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final
from urllib.parse import parse_qsl, unquote, unquote_to_bytes, urlsplit
from xml.etree import ElementTree

from lakepact.catalog.errors import BadRequest, Refusal
from lakepact.iceberg.fields import JsonObject, filled_text, json_list, json_object, optional_text
from lakepact.server.vending.s3_policy import METADATA_FILE
from lakepact.server.vending.scope import Scope
from lakepact.server.vending.sigv4 import UNSIGNED, canonical_query, encoded, sha256

_MOST_DELETED: Final = 1_000
_MOST_KEY_BYTES: Final = 1_024
_MOST_LIST_BYTES: Final = 2 * 1024 * 1024
"""What S3 takes: of the name of an object, and of a list of objects to delete."""

_MOST_ENCODINGS: Final = 4
"""Nobody on the way decodes a name more often than this, and no honest one is encoded more often."""

_MOST_FIELDS: Final = 50
_LISTING: Final = frozenset(
    {
        "list-type",
        "prefix",
        "delimiter",
        "max-keys",
        "continuation-token",
        "start-after",
        "encoding-type",
        "fetch-owner",
    }
)
_DECLARATION: Final = re.compile(
    r"""\A<\?xml\s+version=["']1\.0["'](\s+encoding=["']utf-8["'])?(\s+standalone=["'](yes|no)["'])?\s*\?>""",
    re.IGNORECASE,
)
_VOCABULARY: Final = "{http://s3.amazonaws.com/doc/2006-03-01/}"
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_HASH: Final = re.compile(r"[0-9a-f]{64}")
_STREAMED: Final = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"

_SIGNED: Final = frozenset({"content-type", "content-md5", "content-encoding", "range"})
"""Headers that are signed if they are sent, beside Amazon's own. The others can only narrow a request."""

_AMAZON: Final = frozenset(
    {
        "x-amz-checksum-algorithm",
        "x-amz-checksum-mode",
        "x-amz-checksum-type",
        "x-amz-content-sha256",
        "x-amz-decoded-content-length",
        "x-amz-expected-bucket-owner",
        "x-amz-mp-object-size",
        "x-amz-request-payer",
        "x-amz-sdk-checksum-algorithm",
        "x-amz-server-side-encryption",
        "x-amz-server-side-encryption-aws-kms-key-id",
        "x-amz-server-side-encryption-bucket-key-enabled",
        "x-amz-server-side-encryption-customer-algorithm",
        "x-amz-server-side-encryption-customer-key",
        "x-amz-server-side-encryption-customer-key-md5",
        "x-amz-storage-class",
        "x-amz-tagging",
        "x-amz-te",
        "x-amz-trailer",
    }
)
"""Not among them: everything that copies from elsewhere, or that lets others in."""

_AMAZON_FAMILIES: Final = ("x-amz-checksum-", "x-amz-meta-")
_OURS: Final = frozenset({"authorization", "host", "x-amz-date", "x-amz-security-token"})
"""What the client may have put there is replaced."""

_DROPPED: Final = ("amz-sdk-", "x-amz-user-agent")


class NotSigned(Refusal):
    """This request is not for this table, or not for this caller."""

    type: ClassVar[str] = "ForbiddenException"
    code: ClassVar[int] = 403


@dataclass(frozen=True, slots=True)
class SignRequest:
    """What the client sent."""

    method: str
    uri: str
    region: str
    headers: Mapping[str, str]
    """Names in lower case."""

    body: str | None


@dataclass(frozen=True, slots=True)
class ToSign:
    """A request that may be made, in its one spelling."""

    method: str
    scheme: str
    host: str
    path: str
    query: str
    signed: Mapping[str, str]
    unsigned: Mapping[str, str]
    payload_hash: str

    @property
    def uri(self) -> str:
        return f"{self.scheme}://{self.host}{self.path}" + (f"?{self.query}" if self.query else "")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where S3 is: at a URL of one's own, or at Amazon."""

    url: str | None
    virtual: bool = False
    """Whether buckets are hosts below one's own URL, not folders. Amazon takes both."""

    @property
    def is_amazon(self) -> bool:
        if self.url is None:
            return True
        own = urlsplit(self.url)
        return own.scheme == "https" and _AMAZON_HOST.fullmatch(without_port("https", own.netloc)) is not None

    def below(self, scheme: str, host: str, path: str, bucket: str) -> tuple[str, str]:
        """The path in two parts: what names the bucket, if it does, and what is in it. Others are refused."""
        base = ""
        if self.url is None:
            if scheme != "https":
                raise NotSigned("requests to Amazon S3 go by https")
        else:
            own = urlsplit(self.url)
            if scheme != own.scheme:
                raise NotSigned(f"requests to S3 go by {own.scheme} here")
            base = own.path.rstrip("/")
        if self._is_s3(host) and not (self.url is not None and self.virtual):
            named = f"{base}/{bucket}"
            if path != named and not path.startswith(f"{named}/"):
                raise NotSigned("the request is for another bucket than the table's")
            return named, path[len(named) :] or "/"
        by_host = self.url is None or (self.virtual and not base)
        if by_host and host.startswith(f"{bucket}.") and self._is_s3(host[len(bucket) + 1 :]):
            return "", path or "/"
        raise NotSigned("the request is for another host or bucket than the table's")

    def _is_s3(self, host: str) -> bool:
        if self.url is None:
            return _AMAZON_HOST.fullmatch(host) is not None
        own = urlsplit(self.url)
        return host == without_port(own.scheme, own.netloc)


_AMAZON_HOST: Final = re.compile(r"s3([.-](dualstack\.)?[a-z]{2}(-[a-z]+)+-\d)?\.amazonaws\.com(\.cn)?")


def parse_sign_request(body: Any) -> SignRequest:
    document = json_object(body, "sign request")
    provider = optional_text(document, "provider", "sign request")
    if provider not in (None, "s3"):
        raise BadRequest(f"requests are signed for s3 alone, not for {provider[:40]!r}")
    headers: dict[str, str] = {}
    for name, values in json_object(document.get("headers"), "sign request: 'headers'").items():
        texts = json_list(values, f"sign request: header {name[:40]!r}")
        if not all(isinstance(one, str) for one in texts) or _CONTROL.search(name + "".join(texts)):
            raise BadRequest(f"header {name[:40]!r} is not a list of plain texts")
        if name.lower() in headers:
            raise BadRequest(f"header {name[:40]!r} is there twice")
        headers[name.lower()] = ",".join(texts)
    return SignRequest(
        method=filled_text(document, "method", "sign request").upper(),
        uri=filled_text(document, "uri", "sign request"),
        region=filled_text(document, "region", "sign request"),
        headers=headers,
        body=_body(document),
    )


def _body(document: JsonObject) -> str | None:
    body = document.get("body")
    if body is not None and not isinstance(body, str):
        raise BadRequest("sign request: 'body' is a text")
    return body


def to_sign(request: SignRequest, scope: Scope, endpoint: Endpoint) -> ToSign:
    """The request as it may be made, or `NotSigned`."""
    uri = request.uri
    if not uri.isascii() or _CONTROL.search(uri) or "\\" in uri or " " in uri:
        raise BadRequest("the uri holds characters that a URL has not; percent-encode them")
    try:
        parts = urlsplit(uri)
    except ValueError as error:
        raise BadRequest(f"the uri is not a URL: {error}") from None
    if "#" in uri or "@" in parts.netloc:
        raise NotSigned("a uri with a fragment, a user or a password is not signed")
    host = without_port(parts.scheme, parts.netloc)
    named, path = endpoint.below(parts.scheme, host, parts.path, scope.bucket)
    fields = _fields(parts.query)
    # The SDKs say in `x-id` what they do; it is a comment.
    query = {name: value for name, value in fields if name != "x-id"}
    payload = _payload(request.headers)
    if path == "/":
        payload, spelled = _check_bucket(request, query, scope, payload), "/"
    else:
        key = _key(path)
        _check_object(request.method, query, key, scope)
        spelled = "/" + encoded(key, slashes=True)
    signed, unsigned = _headers(request.headers)
    return ToSign(
        method=request.method,
        scheme=parts.scheme,
        host=host,
        path=named + spelled,
        query=canonical_query(fields),
        signed={**signed, "host": host, "x-amz-content-sha256": payload},
        unsigned=unsigned,
        payload_hash=payload,
    )


def _payload(headers: Mapping[str, str]) -> str:
    """What S3 is told of the body: its hash, or how it comes.

    A client that leaves signing to others may not say. If it announces a trailer, its body comes in chunks: told
    otherwise, S3 would refuse it, or others would store the chunks' frames among the data.
    """
    said = headers.get("x-amz-content-sha256") or (_STREAMED if "x-amz-trailer" in headers else UNSIGNED)
    if said not in (UNSIGNED, _STREAMED) and not _HASH.fullmatch(said):
        raise NotSigned(f"a body that is signed in parts ({said[:60]}) is not signed remotely; send it unsigned")
    encodings = {one.strip().lower() for one in headers.get("content-encoding", "").split(",")}
    if "aws-chunked" in encodings and said != _STREAMED:
        raise NotSigned(f"a body in chunks (aws-chunked) is not {said[:60]}; send it whole, or with a trailer")
    return said


def _check_object(method: str, query: Mapping[str, str], key: str, scope: Scope) -> None:
    if not key.startswith(f"{scope.folder}/"):
        raise NotSigned(f"the object is not one of the table's, which are below {scope.location}/")
    _check_spelling(key)
    names = set(query)
    match method:
        case "GET" | "HEAD" if names <= {"versionId", "partNumber"}:
            return
        case "GET" if names <= {"uploadId", "max-parts", "part-number-marker"} and "uploadId" in names:
            needed = "to list the parts of an upload"
        case "PUT" if names in (set(), {"partNumber", "uploadId"}):
            needed = "to write"
        case "POST" if names in ({"uploads"}, {"uploadId"}):
            needed = "to write"
        case "DELETE" if names in (set(), {"uploadId"}):
            needed = "to delete"
        case _:
            raise NotSigned(f"{method} with the query fields {sorted(names)} is not signed for a table's objects")
    if not scope.right.writes:
        raise NotSigned(f"you may read this table; the right to write is needed {needed}")
    # An upload that is not completed is no file.
    if method == "DELETE" and "uploadId" not in names:
        _check_deletes(scope)
    if method in ("PUT", "POST") and METADATA_FILE in key[len(scope.folder) :]:
        raise NotSigned("metadata files are written by the catalog alone; commit to the table instead")


def _check_deletes(scope: Scope) -> None:
    if not scope.right.deletes:
        raise NotSigned(
            f"inside a transaction no file of {scope.location} is deleted: the committed table may refer to it. "
            f"Delete it outside of the transaction"
        )


def _check_bucket(request: SignRequest, query: Mapping[str, str], scope: Scope, payload: str) -> str:
    """The hash of the body to sign."""
    if request.method == "GET" and query.get("list-type") == "2" and set(query) <= _LISTING:
        if not query.get("prefix", "").startswith(f"{scope.folder}/"):
            raise NotSigned(f"a listing must have a prefix inside of the table's folder, {scope.folder}/")
        return payload
    if request.method == "POST" and set(query) == {"delete"}:
        if not scope.right.writes:
            raise NotSigned("you may read this table; the right to write is needed to delete")
        _check_deletes(scope)
        if request.body is None:
            raise NotSigned("a request to delete many objects is signed with its body; send the body too")
        for key in _deleted(request.body):
            _check_object("DELETE", {}, key, scope)
        # Of this very body: with another one the signature is wrong.
        return sha256(request.body.encode())
    raise NotSigned(f"{request.method} of a bucket with the query fields {sorted(query)} is not signed")


def _deleted(body: str) -> list[str]:
    if len(body) > _MOST_LIST_BYTES:
        raise NotSigned(
            f"the list of objects to delete has more than {_MOST_LIST_BYTES:,} characters; send less at once"
        )
    text = _DECLARATION.sub("", body, count=1)
    if "<!" in text or "<?" in text:
        raise NotSigned("the list of objects to delete is not plain XML in UTF-8")
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise BadRequest(f"the list of objects to delete is not XML: {error}") from None
    if _names(root) != "Delete" or any(one.attrib or _has_text_between(one) for one in root.iter()):
        raise NotSigned("the list of objects to delete is more than a list of keys")
    keys: list[str] = []
    for one in root:
        match _names(one), [_names(field) for field in one]:
            case "Quiet", []:
                continue
            case "Object", ["Key"] if not len(one[0]):
                keys.append(_bounded(one[0].text or ""))
            case _:
                raise NotSigned("only whole objects are deleted, by their keys alone, not versions of them")
    if not 0 < len(keys) <= _MOST_DELETED:
        raise NotSigned(f"{len(keys)} objects to delete; 1 to {_MOST_DELETED} are signed at once")
    return keys


def _has_text_between(element: ElementTree.Element) -> bool:
    """Whether there is text beside elements, which one reader may skip and another may not."""
    return bool((element.tail or "").strip() or (len(element) and (element.text or "").strip()))


def _names(element: ElementTree.Element) -> str:
    """What an element is, in S3's own words. Those of another vocabulary are nothing."""
    return element.tag.removeprefix(_VOCABULARY)


def _key(path: str) -> str:
    """The object that this path names, decoded once, as S3 does it."""
    # Three characters of a URL are one byte at least.
    if len(path) - 1 > 3 * _MOST_KEY_BYTES:
        raise _too_long()
    if re.search(r"%(?![0-9A-Fa-f]{2})", path):
        raise BadRequest("the uri has a '%' that escapes nothing")
    try:
        return _bounded(unquote_to_bytes(path[1:]).decode("utf-8"))
    except UnicodeDecodeError:
        raise BadRequest("the uri is not UTF-8") from None


def _bounded(key: str) -> str:
    if len(key.encode()) > _MOST_KEY_BYTES:
        raise _too_long()
    return key


def _too_long() -> BadRequest:
    return BadRequest(f"the name of an object has more than {_MOST_KEY_BYTES:,} bytes, which S3 does not take")


def _check_spelling(key: str) -> None:
    """No part of a key may look like a way to another folder, however often somebody on the way decodes it."""
    looked = key
    for _ in range(_MOST_ENCODINGS):
        parts = looked.split("/")
        # The last one may be empty: that is a folder's own marker.
        if any(part in (".", "..") for part in parts) or "" in parts[:-1] or "\\" in looked or _CONTROL.search(looked):
            raise NotSigned("an object whose name has an empty, '.' or '..' part is not signed")
        decoded = unquote(looked)
        if decoded == looked:
            return
        looked = decoded
    raise NotSigned("an object whose name is encoded over and over is not signed")


def _headers(headers: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    signed: dict[str, str] = {}
    unsigned: dict[str, str] = {}
    for name, value in headers.items():
        if name in _OURS or name.startswith(_DROPPED):
            continue
        if name in _SIGNED or name in _AMAZON or name.startswith(_AMAZON_FAMILIES):
            signed[name] = value
        elif name.startswith("x-amz-"):
            raise NotSigned(f"the header {name[:60]} is not signed: a table's files need none of it")
        else:
            unsigned[name] = value
    return signed, unsigned


def _fields(query: str) -> Sequence[tuple[str, str]]:
    """Fields may have no value, such as `uploads` and `delete`."""
    try:
        fields = parse_qsl(query, keep_blank_values=True, errors="strict", max_num_fields=_MOST_FIELDS)
    except ValueError:
        raise BadRequest("the query of the uri cannot be read; percent-encode it as UTF-8") from None
    if len({name for name, _ in fields}) != len(fields):
        raise NotSigned("a query with a field twice is not signed")
    return fields


def without_port(scheme: str, host: str) -> str:
    """A host in the spelling that clients send: in lower case, and without the port that goes without saying."""
    return host.lower().removesuffix(":443" if scheme == "https" else ":80")
