"""Spark at a server whose certificate is of an authority of one's own, as docs/security.md says it is done."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.certificates import loopback_certificate
from tests.support.server import running_server

PASSWORD = "changeit"

SCRIPT = """
import sys

import lakepact.spark as lp

uri, trust = sys.argv[1:]
spark = lp.session("local[1]", uri=uri, **{"spark.driver.extraJavaOptions": trust, "spark.ui.enabled": "false"})
spark.sql("CREATE NAMESPACE db")
spark.sql("CREATE TABLE db.t (id BIGINT)")
with lp.connect(spark, uri).transaction() as tx:
    tx.sql("INSERT INTO db.t VALUES (1), (2)")
print("rows:", spark.table("db.t").count())
"""


def test_the_jvm_trusts_by_its_trust_store_and_python_by_the_bundle(tmp_path: Path) -> None:
    certificate, key = loopback_certificate(tmp_path)
    store = tmp_path / "trust.p12"
    into = ("-keystore", str(store), "-storetype", "PKCS12", "-storepass", PASSWORD)
    subprocess.run(
        ["keytool", "-importcert", "-noprompt", "-alias", "lakepact", "-file", str(certificate), *into],
        check=True,
        capture_output=True,
    )
    trust = f"-Djavax.net.ssl.trustStore={store} -Djavax.net.ssl.trustStorePassword={PASSWORD}"
    options = ("--tls-cert", str(certificate), "--tls-key", str(key))
    with running_server(tmp_path, *options, ca_bundle=certificate) as server:
        ended = subprocess.run(
            [sys.executable, "-c", SCRIPT, server.url, trust],
            env={**os.environ, "LAKEPACT_CA_BUNDLE": str(certificate)},
            capture_output=True,
            text=True,
        )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines()[-1] == "rows: 2"
