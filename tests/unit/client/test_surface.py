"""What the package offers is explicit, sorted, and costs nothing until it is asked for."""

from __future__ import annotations

import subprocess
import sys

import pytest

import lakepact
from lakepact import client
from lakepact.client.http import HttpTransport


def test_the_public_names_are_sorted_and_there() -> None:
    assert client.__all__ == sorted(client.__all__)
    assert all(hasattr(client, name) for name in client.__all__)
    assert lakepact.connect is client.connect


def test_importing_lakepact_loads_no_client_and_the_client_loads_no_pyiceberg() -> None:
    code = (
        "import sys, lakepact; assert 'lakepact.client' not in sys.modules; lakepact.connect; "
        "assert 'lakepact.client' in sys.modules; "
        "assert not [name for name in sys.modules if name.split('.')[0] in ('pyiceberg', 'asyncio', 'pyarrow')]"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="disconnect"):
        lakepact.disconnect  # noqa: B018


@pytest.mark.parametrize("uri", ["localhost:8181", "ftp://host", "http://", "/v1"])
def test_an_address_that_is_none_is_refused_at_once(uri: str) -> None:
    with pytest.raises(ValueError, match="is not the address of a server"):
        HttpTransport(uri)
