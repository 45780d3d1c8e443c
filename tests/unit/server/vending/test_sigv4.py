"""The signature is AWS's: by their published example, and by botocore's own on odd requests."""

from __future__ import annotations

from urllib.parse import urlencode

import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from lakepact.server.vending.sigv4 import UNSIGNED, Keys, canonical_query, encoded, sha256, signed_headers

NOW_MS = 1_440_938_160_000  # 20150830T123600Z


def test_the_published_example() -> None:
    keys = Keys("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")
    headers = {"host": "example.amazonaws.com"}
    signed = signed_headers(
        "GET", "/", "", headers, sha256(b""), keys, region="us-east-1", service="service", now_ms=NOW_MS
    )
    assert signed["x-amz-date"] == "20150830T123600Z"
    assert signed["authorization"] == (
        "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, "
        "SignedHeaders=host;x-amz-date, Signature=5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"
    )


@pytest.mark.parametrize("token", [None, "a/session+token=="])
@pytest.mark.parametrize(
    ("method", "key", "query"),
    [
        ("GET", "plain/data.parquet", []),
        ("PUT", "sp ace/ü/100%/a+b=c&d/~'()*!,.parquet", []),
        ("GET", "", [("list-type", "2"), ("prefix", "a b/ü"), ("delimiter", "/"), ("Z", ""), ("a", "+")]),
        ("POST", "k", [("uploads", "")]),
        ("PUT", "k", [("partNumber", "10"), ("uploadId", "a.b_c-d~e/=")]),
    ],
)
def test_it_is_botocores(method: str, key: str, query: list[tuple[str, str]], token: str | None) -> None:
    keys = Keys("AK", "secret", token)
    headers = {
        "host": "127.0.0.1:9000",
        "x-amz-content-sha256": UNSIGNED,
        "content-type": "text/plain;  charset=x",
        "x-amz-meta-note": "  a   b ",
    }
    path = "/lake/" + encoded(key, slashes=True)
    ours = signed_headers(
        method,
        path,
        canonical_query(query),
        headers,
        UNSIGNED,
        keys,
        region="eu-central-1",
        service="s3",
        now_ms=NOW_MS,
    )
    request = AWSRequest(method, f"http://127.0.0.1:9000{path}", params=dict(query))
    request.headers["X-Amz-Date"] = ours["x-amz-date"]
    if token is not None:
        request.headers["X-Amz-Security-Token"] = token
    for name, value in headers.items():
        request.headers[name] = value
    request.context["timestamp"] = ours["x-amz-date"]
    theirs = S3SigV4Auth(Credentials("AK", "secret", token), "s3", "eu-central-1")
    signature = theirs.signature(theirs.string_to_sign(request, theirs.canonical_request(request)), request)
    assert ours["authorization"].endswith(f"Signature={signature}"), urlencode(query)


def test_keys_do_not_show_their_secrets() -> None:
    shown = repr(Keys("AK", "hidden-secret", "hidden-token"))
    assert "AK" in shown and "hidden" not in shown
