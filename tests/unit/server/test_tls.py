"""The server's certificate: what is wrong with its files is said before anything listens, and does no harm later."""

from __future__ import annotations

import asyncio
import shutil
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from typer.testing import CliRunner

from lakepact.cli import app
from lakepact.errors import InvalidSetting
from lakepact.server import tls
from lakepact.server.tls import Certificate
from lakepact.settings import Settings
from tests.support.certificates import loopback_certificate
from tests.support.waiting import PATIENCE_S


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    return loopback_certificate(tmp_path)


@pytest.fixture
def others(tmp_path: Path) -> tuple[Path, Path]:
    (tmp_path / "others").mkdir()
    return loopback_certificate(tmp_path / "others")


def encrypt(key: Path) -> None:
    loaded = serialization.load_pem_private_key(key.read_bytes(), None)
    hidden = serialization.BestAvailableEncryption(b"hush")
    key.write_bytes(loaded.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, hidden))


def folder_at(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda cert, key: cert.unlink(), "tls_cert = .*No such file"),
        (lambda cert, key: key.unlink(), "tls_key = .*No such file"),
        (lambda cert, key: folder_at(key), "tls_key = .*Is a directory"),
        (lambda cert, key: cert.write_text("no certificate"), "no certificate and key in PEM"),
        (lambda cert, key: key.write_bytes(b"\x00"), "no certificate and key in PEM"),
        (lambda cert, key: cert.write_bytes(key.read_bytes()), "no certificate and key in PEM"),
        (lambda cert, key: encrypt(key), "is encrypted"),
    ],
)
def test_files_that_cannot_be_used_are_named_with_what_is_wrong(
    spoil: Callable[[Path, Path], Any], why: str, files: tuple[Path, Path]
) -> None:
    spoil(*files)
    with pytest.raises(InvalidSetting, match=why) as caught:
        Certificate(*map(str, files))
    assert "BEGIN" not in str(caught.value)


def test_a_key_of_another_certificate_is_refused(files: tuple[Path, Path], others: tuple[Path, Path]) -> None:
    with pytest.raises(InvalidSetting, match="is not the key of the certificate in"):
        Certificate(str(files[0]), str(others[1]))


def test_one_without_the_other_is_refused(files: tuple[Path, Path]) -> None:
    for given in ({"tls_cert": str(files[0])}, {"tls_key": str(files[1])}):
        with pytest.raises(InvalidSetting, match="go together"):
            Settings.load(**given)
    assert Certificate.of(Settings.load()) is None


def test_the_command_says_so_too_and_listens_nowhere(files: tuple[Path, Path]) -> None:
    given = ["serve", "--port", "0", "--tls-cert", str(files[0]), "--tls-key", str(files[0])]
    ended = CliRunner().invoke(app, given)
    assert ended.exit_code == 2 and "no certificate and key in PEM" in ended.stderr
    assert "listens on" not in ended.stdout


def test_binding_elsewhere_without_names_is_refused_with_tls_too(files: tuple[Path, Path]) -> None:
    given = ["serve", "--port", "0", "--host", "0.0.0.0", "--tls-cert", str(files[0]), "--tls-key", str(files[1])]
    ended = CliRunner().invoke(app, given)
    assert ended.exit_code == 2 and "--insecure" in ended.stderr


def test_cookies_are_secure_where_the_server_is_reached_by_https(files: tuple[Path, Path]) -> None:
    given = {"tls_cert": str(files[0]), "tls_key": str(files[1])}
    assert Settings.load(**given).reached_by_https
    assert Settings.load(public_url="https://a").reached_by_https
    assert not Settings.load().reached_by_https
    # What browsers see counts.
    assert not Settings.load(**given, public_url="http://a").reached_by_https


def presented(certificate: Certificate, name: str | None) -> bytes:
    """The certificate that a client is shown, who asks for this name or for none."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE

    async def both() -> bytes:
        server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=certificate.context)
        async with server:
            port = server.sockets[0].getsockname()[1]
            _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client, server_hostname=name or "")
            found: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
            writer.close()
            return found

    return asyncio.run(both())


def der(path: Path) -> bytes:
    return ssl.PEM_cert_to_DER_cert(path.read_text())


@pytest.mark.parametrize("name", ["localhost", None])
def test_new_files_are_used_for_new_connections_and_broken_ones_are_not(
    name: str | None, files: tuple[Path, Path], others: tuple[Path, Path]
) -> None:
    certificate = Certificate(*map(str, files))
    assert certificate.context.minimum_version is ssl.TLSVersion.TLSv1_2
    first, second = der(files[0]), der(others[0])
    assert presented(certificate, name) == first
    shutil.copy(others[0], files[0])
    # The other half is still to come.
    certificate.read_again()
    assert presented(certificate, name) == first
    shutil.copy(others[1], files[1])
    certificate.read_again()
    assert presented(certificate, name) == second
    files[1].unlink()
    certificate.read_again()
    assert presented(certificate, name) == second
    assert certificate.chain == others[0].read_bytes() and certificate.key == others[1].read_bytes()


def test_a_running_server_sees_new_files_by_itself(
    files: tuple[Path, Path], others: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls, "LOOK_EVERY_S", 0.01)
    certificate = Certificate(*map(str, files))

    async def watched() -> None:
        watching = asyncio.create_task(certificate.watch())
        for old, new in zip(files, others, strict=True):
            # As it is done where files are mounted: the name leads to another file.
            old.unlink()
            old.symlink_to(new)
        async with asyncio.timeout(PATIENCE_S):
            while certificate.chain != others[0].read_bytes():
                await asyncio.sleep(0.01)
        watching.cancel()

    asyncio.run(watched())
    assert presented(certificate, None) == der(others[0])
