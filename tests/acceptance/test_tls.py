"""A server that speaks TLS itself, at both doors, and clients that trust an authority of their own."""

from __future__ import annotations

import http.client
import re
import shutil
import signal
import ssl
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import duckdb
import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from pyiceberg.catalog import load_catalog
from typer.testing import CliRunner

import lakepact
from lakepact.cli import app
from lakepact.cli.checkup import ports
from lakepact.cli.finding import Finding, Verdict
from lakepact.client import Retry, Unavailable
from lakepact.errors import InvalidSetting
from lakepact.settings import Settings
from lakepact.v1 import transactions_pb2 as pb
from lakepact.v1 import transactions_pb2_grpc
from tests.support.certificates import loopback_certificate
from tests.support.duckdb_iceberg import EXTENSIONS, extension_path
from tests.support.server import Server, running_server
from tests.support.tokens import create_token
from tests.support.waiting import PATIENCE_S, wait_until

_ONCE = Retry(attempts=1, deadline_s=20.0)


@dataclass(frozen=True, slots=True)
class Tls:
    server: Server
    certificate: Path
    key: Path
    token: str

    @property
    def port(self) -> int:
        return int(urlsplit(self.server.url).port or 0)

    @property
    def grpc_address(self) -> str:
        found: list[str] = re.findall(
            r"^gRPC listens on (\S+:\d+), with TLS$", self.server.log.read_text(), re.MULTILINE
        )
        return found[-1]

    def channel(self, authority: Path) -> Any:
        trusted = grpc.ssl_channel_credentials(authority.read_bytes())
        return grpc.secure_channel(self.grpc_address, trusted, [("grpc.enable_http_proxy", 0)])

    def presented(self) -> str:
        return ssl.get_server_certificate(("127.0.0.1", self.port), timeout=PATIENCE_S)

    def ends_in_days(self, authority: Path) -> float:
        """As the server's metric says."""
        context = ssl.create_default_context(cafile=str(authority))
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, context=context, timeout=PATIENCE_S)
        connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {self.token}"})
        told = connection.getresponse().read().decode()
        connection.close()
        [ends_at_s] = re.findall(r"^lakepact_certificate_ends_timestamp_seconds (\S+)$", told, re.MULTILINE)
        return (float(ends_at_s) - time.time()) / 86_400


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tls]:
    folder = tmp_path_factory.mktemp("tls")
    certificate, key = loopback_certificate(folder)
    # As users of a private authority have it: what clients trust is a file of its own.
    trusted = folder / "authority.pem"
    shutil.copy(certificate, trusted)
    token = create_token(folder, "root", "--admin").text
    options = ("--tls-cert", str(certificate), "--tls-key", str(key), "--grpc-port", "0", "--workers", "2")
    with running_server(folder, *options, "--auth", "tokens", ca_bundle=trusted) as server:
        yield Tls(server, certificate, key, token)


@pytest.fixture(autouse=True)
def nobody_else_is_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the library of PyIceberg's requests puts before what it is told."""
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "LAKEPACT_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def authority(tls: Tls) -> Path:
    return tls.certificate.with_name("authority.pem")


def test_it_says_https_and_answers_to_nothing_else(tls: Tls) -> None:
    told = tls.server.log.read_text()
    assert tls.server.url.startswith("https://127.0.0.1:") and f"The web page is at {tls.server.url}/ui" in told
    assert "http://" not in told
    plain = http.client.HTTPConnection("127.0.0.1", tls.port, timeout=PATIENCE_S)
    with pytest.raises((http.client.HTTPException, OSError)):
        plain.request("GET", "/livez")
        plain.getresponse()
    plain.close()


def test_the_python_client_trusts_whom_it_is_told_to_trust(
    tls: Tls, authority: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with lakepact.connect(tls.server.url, token=tls.token, ca_bundle=authority) as lake:
        lake.namespaces.create("client")
        # PyIceberg is told whom to trust, too.
        assert ("client",) in lake.pyiceberg().list_namespaces()
    with pytest.raises(Unavailable, match=r"is not to be trusted.*LAKEPACT_CA_BUNDLE"):
        lakepact.connect(tls.server.url, token=tls.token, retry=_ONCE)
    monkeypatch.setenv("LAKEPACT_CA_BUNDLE", str(authority))
    with lakepact.connect(tls.server.url, credential=tls.token.removeprefix("lakepact_").replace("_", ":")) as lake:
        assert ("client",) in lake.namespaces.list()
    for wrong, why in ((tls.key, "no certificate in it"), (authority.with_name("nowhere"), "No such file")):
        with pytest.raises(InvalidSetting, match=why):
            lakepact.connect(tls.server.url, ca_bundle=wrong)


def test_the_command_line_trusts_whom_it_is_told_to_trust(tls: Tls, authority: Path) -> None:
    given = ["namespaces", "list", "--uri", tls.server.url, "--token", tls.token]
    ended = CliRunner().invoke(app, ["--ca-bundle", str(authority), *given])
    assert ended.exit_code == 0, ended.stderr
    ended = CliRunner().invoke(app, given, env={"LAKEPACT_CA_BUNDLE": str(authority)})
    assert ended.exit_code == 0, ended.stderr
    # Neither is left behind.
    ended = CliRunner().invoke(app, ["--ca-bundle", str(tls.key), *given])
    assert ended.exit_code == 2 and "no certificate in it" in ended.stderr


def test_pyiceberg_with_its_own_settings(tls: Tls, authority: Path) -> None:
    catalog = load_catalog(
        "lake",
        type="rest",
        uri=tls.server.url,
        warehouse="main",
        token=tls.token,
        ssl={"cabundle": str(authority)},  # type: ignore[arg-type]
    )
    catalog.create_namespace_if_not_exists("stock")
    assert ("stock",) in catalog.list_namespaces()


def test_duckdb_with_its_own_settings(tls: Tls, authority: Path) -> None:
    with lakepact.connect(tls.server.url, token=tls.token, ca_bundle=authority) as lake:
        lake.namespaces.create("duck")
    with duckdb.connect(config={"autoinstall_known_extensions": "false"}) as connection:
        for extension in EXTENSIONS:
            connection.execute(f"LOAD '{extension_path(extension)}'")
        connection.execute(f"SET ca_cert_file = '{authority}'")
        connection.execute(f"CREATE SECRET lake (TYPE iceberg, TOKEN '{tls.token}')")
        connection.execute(f"ATTACH 'main' AS lake (TYPE iceberg, ENDPOINT '{tls.server.url}', SECRET lake)")
        found = connection.execute("SELECT schema_name FROM duckdb_schemas() WHERE database_name = 'lake'").fetchall()
        assert ("duck",) in found


def test_grpc_speaks_tls_with_the_same_certificate(tls: Tls, authority: Path) -> None:
    metadata = (("authorization", f"Bearer {tls.token}"),)
    with tls.channel(authority) as channel:
        stub = transactions_pb2_grpc.TransactionsStub(channel)
        begun = stub.BeginTransaction(pb.BeginTransactionRequest(), timeout=PATIENCE_S, metadata=metadata)
        assert begun.transaction.state == pb.TS_OPEN
    with grpc.insecure_channel(tls.grpc_address, [("grpc.enable_http_proxy", 0)]) as channel:
        with pytest.raises(grpc.RpcError) as caught:
            health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=PATIENCE_S)
        assert caught.value.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.INTERNAL)


def test_the_doctor_finds_the_certificate_and_the_server_behind_it(tls: Tls) -> None:
    given = {"port": tls.port, "tls_cert": str(tls.certificate)}

    def recognised() -> dict[str, Finding] | None:
        """Return the findings, unless the server did not answer within the few seconds that doctor waits for it."""
        found = {one.subject: one for one in ports(Settings.load(**given, tls_key=str(tls.key)))}
        return found if "is ready" in found["port"].detail else None

    found = wait_until(recognised, "the server is not recognised") or {}
    assert {one.subject for one in found.values() if one.verdict is not Verdict.OK} == {"certificate"}
    assert found["certificate"].verdict is Verdict.WARN and "Renew it in time" in found["certificate"].do
    assert "a Lakepact server" in found["port"].detail and "is ready" in found["port"].detail
    found = {one.subject: one for one in ports(Settings.load(**given, tls_key=str(tls.certificate)))}
    assert found["certificate"].verdict is Verdict.FAIL


@pytest.mark.parametrize(("days", "verdict"), [(15, Verdict.OK), (13, Verdict.WARN), (-1, Verdict.FAIL)])
def test_the_doctor_says_in_time_that_a_certificate_ends(days: float, verdict: Verdict, tmp_path: Path) -> None:
    certificate, key = loopback_certificate(tmp_path, days=days)
    found = {one.subject: one for one in ports(Settings.load(port=0, tls_cert=str(certificate), tls_key=str(key)))}
    assert found["certificate"].verdict is verdict, found
    assert "good until 20" in found["certificate"].detail


def test_cookies_of_the_web_page_are_for_https_alone(tls: Tls, authority: Path) -> None:
    context = ssl.create_default_context(cafile=str(authority))
    connection = http.client.HTTPSConnection("localhost", tls.port, context=context, timeout=PATIENCE_S)
    form = urlencode({"token": tls.token, "next": "/ui/server"})
    connection.request("POST", "/ui/login", form, {"Content-Type": "application/x-www-form-urlencoded"})
    answer = connection.getresponse()
    cookie = answer.getheader("Set-Cookie") or ""
    assert answer.status == 303 and cookie.startswith("__Host-lakepact=") and cookie.endswith("; Secure")
    connection.close()


# The last one: clients of the tests before trust the first certificate.
def test_new_files_are_used_without_a_restart(tls: Tls, authority: Path, tmp_path: Path) -> None:
    new, new_key = loopback_certificate(tmp_path, days=30)
    first = tls.presented()
    assert 0 < tls.ends_in_days(authority) < 1.1
    assert first.strip() == authority.read_text().strip()
    with lakepact.connect(tls.server.url, token=tls.token, ca_bundle=authority) as lake:
        # Half of it: nothing changes, and the log says why.
        shutil.copy(new, tls.certificate)
        tls.server.process.send_signal(signal.SIGHUP)
        wait_for(tls.server, "the certificate cannot be read again", 2)
        assert tls.presented() == first
        shutil.copy(new_key, tls.key)
        tls.server.process.send_signal(signal.SIGHUP)
        wait_for(tls.server, "the certificate has changed", 2)
        for _ in range(4):
            assert tls.presented().strip() == new.read_text().strip()
        assert 29 < tls.ends_in_days(new) < 30.1
        # Who was connected still is.
        lake.namespaces.list()
    with lakepact.connect(tls.server.url, token=tls.token, ca_bundle=new) as lake:
        lake.namespaces.list()
    with tls.channel(new) as channel:
        # Either of two processes may answer, and both have it.
        for _ in range(2):
            health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=PATIENCE_S)
    with tls.channel(authority) as channel, pytest.raises(grpc.RpcError):
        health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=PATIENCE_S)


def wait_for(server: Server, event: str, count: int) -> None:
    """Until so many processes have said so."""
    deadline = time.monotonic() + PATIENCE_S
    while server.log.read_text().count(event) < count:
        assert time.monotonic() < deadline, server.told()
        time.sleep(0.05)
