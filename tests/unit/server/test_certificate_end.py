"""Until when a certificate is good: as the library says that reads all of it."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from lakepact.server.certificate_end import ends_at_s

_KEY = ec.generate_private_key(ec.SECP256R1())
_NOW = datetime(2026, 11, 17, 9, 30, 5, tzinfo=UTC)


def certificate(ends: datetime, name: str = "lake") -> bytes:
    named = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    made = (
        x509.CertificateBuilder()
        .subject_name(named)
        .issuer_name(named)
        .public_key(_KEY.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime(1951, 1, 1, tzinfo=UTC))
        .not_valid_after(ends)
        .sign(_KEY, hashes.SHA256())
    )
    return made.public_bytes(serialization.Encoding.PEM)


# Years are written with two digits up to 2049, and with four from then on.
@pytest.mark.parametrize("year", [1951, 1999, 2000, 2027, 2049, 2050, 9999])
def test_it_ends_when_the_library_says(year: int) -> None:
    made = certificate(_NOW.replace(year=year))
    loaded = x509.load_pem_x509_certificate(made)
    assert ends_at_s(made) == loaded.not_valid_after_utc.timestamp()


def test_long_parts_are_passed_over() -> None:
    assert ends_at_s(certificate(_NOW, name="n" * 64)) == _NOW.timestamp()


def test_a_chain_ends_with_the_first_of_its_certificates_that_does() -> None:
    later, sooner = certificate(_NOW.replace(year=2030)), certificate(_NOW)
    assert ends_at_s(b"Bag Attributes: none\n" + later + b"\nthe one above it\n" + sooner) == _NOW.timestamp()


@pytest.mark.parametrize("chain", [b"", b"no certificate", certificate(_NOW)[:200]])
def test_what_cannot_be_told_is_not_told(chain: bytes) -> None:
    assert ends_at_s(chain) is None


def test_damage_anywhere_is_no_error() -> None:
    whole = certificate(_NOW)
    lines = whole.splitlines(keepends=True)
    for number in range(1, len(lines) - 1):
        for other in (b"", b"////\n", b"AAAA\n"):
            ends_at_s(b"".join([*lines[:number], other, *lines[number + 1 :]]))
