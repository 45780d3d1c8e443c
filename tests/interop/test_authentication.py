"""Unmodified Spark, Iceberg's Java client, PyIceberg and DuckDB against a server with authentication: with a token,
with a credential, and for longer than a token lives."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

import duckdb
import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyiceberg.exceptions import UnauthorizedError

import lakepact
import lakepact.spark as lp
from lakepact.client import Unauthorized
from tests.support.duckdb_iceberg import EXTENSIONS, extension_path
from tests.support.issuer import Issuer, running_issuer
from tests.support.live_tables import catalog_at
from tests.support.server import Server, running_server
from tests.support.spark import Lake, refused
from tests.support.tokens import ApiToken, create_token
from tests.support.waiting import PATIENCE_S
from tests.support.witness import Witness, running_witness

LIVES_S = 3
"""How long an access token lives here: short enough to see it refreshed."""


@dataclass(frozen=True)
class World:
    server: Server
    token: ApiToken
    issuer: Issuer

    @property
    def oauth(self) -> str:
        return f"{self.server.url}/v1/oauth/tokens"

    def lines(self) -> list[dict[str, Any]]:
        self.server.log_end()
        return [line for line in self.server.lines() if "status" in line]

    def given_out(self) -> int:
        return sum(line["operation"] == "getToken" and line["status"] == 200 for line in self.lines())

    def wait_for_expiry(self) -> None:
        """Until every access token that is out now has expired."""
        until = time.monotonic() + LIVES_S + 0.5
        eventually(lambda: time.monotonic() >= until)


def eventually(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.1)


def until_recognised(statement: Callable[[], object]) -> None:
    """Spark fetches the next token when a tenth of the old one's life is left. Here that is a moment, in which a busy
    machine may sleep: then it is 401, nothing has happened, and the statement can be repeated."""

    def done() -> bool:
        try:
            statement()
        except Py4JJavaError as error:
            if error.java_exception.getClass().getSimpleName() != "NotAuthorizedException":
                raise
            return False
        return True

    eventually(done)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("asking")
    token = create_token(folder, "engine", "--admin")
    with running_issuer() as issuer:
        given = issuer.settings(access_token_s=LIVES_S, token_cache_s=0, oidc_admin_groups="admins")
        env = {f"LAKEPACT_{name.upper()}": str(value) for name, value in given.items()}
        with running_server(folder, env=env) as server:
            with lakepact.connect(server.url, token=token.text) as lake:
                lake.namespaces.create("db")
            yield World(server, token, issuer)


def test_pyiceberg_works_with_a_token_a_credential_and_an_issuers_token(world: World) -> None:
    rows = pa.table({"id": pa.array([1, 2], pa.int64())})
    by_token = catalog_at(world.server.url, token=world.token.text)
    table = by_token.create_table("db.pyiceberg", rows.schema)
    table.append(rows)
    by_credential = catalog_at(
        world.server.url, credential=world.token.credential, **{"oauth2-server-uri": world.oauth}
    )
    assert by_credential.load_table("db.pyiceberg").scan().to_arrow().num_rows == 2
    given = world.given_out()
    world.wait_for_expiry()
    by_credential.load_table("db.pyiceberg").append(rows)
    assert world.given_out() > given
    assert by_token.load_table("db.pyiceberg").scan().to_arrow().num_rows == 4
    of_the_issuer = catalog_at(world.server.url, token=world.issuer.token(groups=["admins"]))
    assert of_the_issuer.list_tables("db") == [("db", "pyiceberg")]
    for wrong in ({}, {"token": world.token.text + "x"}, {"token": world.issuer.token(aud="other")}):
        with pytest.raises(UnauthorizedError, match="NotAuthorizedException"):
            catalog_at(world.server.url, **wrong)


def test_duckdb_works_with_a_token_and_a_credential_for_longer_than_a_token_lives(world: World) -> None:
    connection = duckdb.connect(config={"autoinstall_known_extensions": "false"})
    for extension in EXTENSIONS:
        connection.execute(f"LOAD '{extension_path(extension)}'")
    connection.execute(f"CREATE SECRET by_token (TYPE iceberg, TOKEN '{world.token.text}')")
    connection.execute(
        f"CREATE SECRET by_credential (TYPE iceberg, CLIENT_ID '{world.token.id}', "
        f"CLIENT_SECRET '{world.token.secret}', OAUTH2_SERVER_URI '{world.oauth}')"
    )
    for secret in ("by_token", "by_credential"):
        connection.execute(f"ATTACH 'main' AS {secret} (TYPE iceberg, ENDPOINT '{world.server.url}', SECRET {secret})")
    connection.execute("CREATE TABLE by_token.db.duck (id BIGINT)")
    connection.execute("INSERT INTO by_credential.db.duck VALUES (1)")
    given = world.given_out()
    world.wait_for_expiry()
    connection.execute("INSERT INTO by_credential.db.duck VALUES (2)")
    assert world.given_out() > given
    found = connection.execute("SELECT id FROM by_token.db.duck ORDER BY id").fetchall()
    assert found == [(1,), (2,)]
    connection.execute("CREATE SECRET wrong (TYPE iceberg, TOKEN 'wrong')")
    with pytest.raises(duckdb.Error, match=r"401|nauthorized|NotAuthorized"):
        connection.execute(f"ATTACH 'main' AS wrong (TYPE iceberg, ENDPOINT '{world.server.url}', SECRET wrong)")
        connection.execute("SELECT * FROM wrong.db.duck").fetchall()
    connection.close()


def test_spark_works_with_a_token_and_a_credential_and_refreshes_by_itself(world: World, lake: Lake) -> None:
    url = world.server.url
    lake.attach("by_token", uri=url, token=world.token.text, cache_enabled="false")
    lake.attach(
        "by_credential",
        uri=url,
        credential=world.token.credential,
        oauth2_server_uri=world.oauth,
        cache_enabled="false",
    )
    lake.sql("CREATE TABLE by_token.db.spark (id BIGINT)")
    until_recognised(lambda: lake.sql("INSERT INTO by_credential.db.spark VALUES (1)"))
    given = world.given_out()
    # Spark fetches the next token before the one it has expires, and again.
    eventually(lambda: world.given_out() >= given + 2)
    until_recognised(lambda: lake.sql("INSERT INTO by_credential.db.spark VALUES (2)"))
    lake.sql("INSERT INTO by_token.db.spark VALUES (3)")

    def in_a_transaction() -> None:
        with lp.connect(lake.spark, url, credential=world.token.credential).transaction() as tx:
            tx.sql("INSERT INTO db.spark VALUES (4)")
            tx.sql("INSERT INTO by_token.db.spark VALUES (5)")

    until_recognised(in_a_transaction)
    assert lake.ids("by_token.db.spark") == [1, 2, 3, 4, 5]
    lake.attach("by_nothing", uri=url)
    lake.attach("by_wrong", uri=url, token=world.token.text + "x")
    for name in ("by_nothing", "by_wrong"):
        with refused("NotAuthorizedException"):
            lake.sql(f"SELECT * FROM {name}.db.spark")


CLIENT_CREDENTIALS = "client_credentials"
EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"


@contextmanager
def java_catalog(lake: Lake, url: str, **options: str) -> Iterator[Any]:
    """A catalog of Iceberg's Java REST client; options in its words, with `_` for `-`."""
    jvm: Any = lake.spark._jvm
    catalog = jvm.org.apache.iceberg.rest.RESTCatalog()
    named = {option.replace("_", "-"): value for option, value in options.items()}
    catalog.initialize("java", {"uri": url, "warehouse": "main", **named})
    try:
        yield catalog
    finally:
        catalog.close()


def namespaces(catalog: Any) -> list[str]:
    return [one.toString() for one in catalog.listNamespaces()]


def grants(witness: Witness, scheme: str = "") -> list[str]:
    """Return the grant types of the requests that got a token and whose Authorization header begins like this.

    A busy machine may be late with a refresh. The token has expired by then: that is the only refusal here.
    """
    requests = witness.posts("/v1/oauth/tokens")
    refusals = [one.json()["error_description"] for one in requests if one.status != 200]
    assert all("expired" in text for text in refusals), refusals
    return [
        dict(parse_qsl(one.body.decode()))["grant_type"]
        for one in requests
        if one.status == 200 and (one.authorization or "").startswith(scheme)
    ]


@pytest.mark.parametrize("explicit", [False, True], ids=["default-uri", "explicit-uri"])
def test_java_client_exchanges_the_token_of_its_credential_before_it_expires(
    world: World, lake: Lake, explicit: bool
) -> None:
    with running_witness(world.server.url) as witness:
        uri = {"oauth2_server_uri": f"{witness.url}/v1/oauth/tokens"} if explicit else {}
        with java_catalog(lake, witness.url, credential=world.token.credential, **uri) as catalog:
            until_recognised(lambda: namespaces(catalog))
            # Two exchanges: of the token that the credential got, and of the token that the first exchange got.
            eventually(lambda: grants(witness).count(EXCHANGE) >= 2)
            until_recognised(lambda: namespaces(catalog))
        assert grants(witness)[0] == CLIENT_CREDENTIALS


def test_java_client_renews_by_its_credential_if_the_exchange_is_switched_off(world: World, lake: Lake) -> None:
    options = {"credential": world.token.credential, "token_exchange_enabled": "false"}
    with running_witness(world.server.url) as witness, java_catalog(lake, witness.url, **options) as catalog:
        before = len(grants(witness))
        eventually(lambda: len(grants(witness)) >= before + 2)
        assert set(grants(witness)) == {CLIENT_CREDENTIALS}
        until_recognised(lambda: namespaces(catalog))


def test_java_client_exchanges_an_api_token_for_an_access_token(world: World, lake: Lake) -> None:
    options = {"token": world.token.text, "token_expires_in_ms": "1000"}
    with running_witness(world.server.url) as witness, java_catalog(lake, witness.url, **options):
        eventually(lambda: EXCHANGE in grants(witness, "Bearer "))
        assert CLIENT_CREDENTIALS not in grants(witness)


def test_java_client_whose_token_has_expired_exchanges_it_with_its_credential(world: World, lake: Lake) -> None:
    options = {"credential": world.token.credential}
    with running_witness(world.server.url) as witness, java_catalog(lake, witness.url, **options) as catalog:
        # The client learns nothing of its next tokens, until the last one that it knows has expired.
        witness.lose_answers("/v1/oauth/tokens", told=503, times=4)
        eventually(lambda: EXCHANGE in grants(witness, "Basic "))
        until_recognised(lambda: namespaces(catalog))


@pytest.mark.parametrize("explicit", [False, True], ids=["default-uri", "explicit-uri"])
def test_java_client_with_a_credential_works_on_a_server_without_authentication(lake: Lake, explicit: bool) -> None:
    with running_witness(lake.server.url) as witness:
        uri = {"oauth2_server_uri": f"{witness.url}/v1/oauth/tokens"} if explicit else {}
        with java_catalog(lake, witness.url, credential="any:thing", **uri) as catalog:
            namespaces(catalog)
        assert set(grants(witness)) == {CLIENT_CREDENTIALS}


def test_java_client_with_a_wrong_credential_is_refused(world: World, lake: Lake) -> None:
    with refused("NotAuthorizedException", "invalid_client"), java_catalog(lake, world.server.url, credential="a:b"):
        pass


def test_our_own_client_refreshes_a_credential_and_a_token_in_a_file(
    world: World, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with lakepact.connect(world.server.url, credential=world.token.credential) as lake:
        with lake.transaction() as tx:
            tx.namespaces.create("ours")
        world.wait_for_expiry()
        assert ("ours",) in lake.namespaces.list()
        assert lake.pyiceberg().namespace_exists("ours")
    file = tmp_path_factory.mktemp("secrets") / "token"
    file.write_text(world.token.text)
    with lakepact.connect(world.server.url, token=f"@{file}") as lake:
        assert ("ours",) in lake.namespaces.list()
        file.write_text(world.issuer.token(groups=["admins"]))
        assert ("ours",) in lake.namespaces.list()
        file.write_text("wrong")
        with pytest.raises(Unauthorized) as unauthorized:
            lake.namespaces.list()
        assert unauthorized.value.status == 401
