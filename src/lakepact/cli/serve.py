from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import urlsplit

import typer

from lakepact import __version__
from lakepact.cli.options import StoreUrl
from lakepact.server.auth.exposure import check_exposed
from lakepact.server.run import bind, reserve, serve_all, url_of
from lakepact.server.tls import Certificate
from lakepact.settings import Settings, without_password

_ICEBERG: Final = "org.apache.iceberg:iceberg-{}:1.12.0"
_CLOUDS: Final = {
    "s3": ("aws-bundle", "org.apache.iceberg.aws.s3.S3FileIO"),
    "gs": ("gcp-bundle", "org.apache.iceberg.gcp.gcs.GCSFileIO"),
    "az": ("azure-bundle", "org.apache.iceberg.azure.adlsv2.ADLSFileIO"),
    "abfss": ("azure-bundle", "org.apache.iceberg.azure.adlsv2.ADLSFileIO"),
}
"""By the scheme of a warehouse: what Spark needs to read and write files there."""

_RELATIVE: Final = "sqlite:///"
"""What an absolute path follows with a slash of its own."""


def serve(
    host: Annotated[str | None, typer.Option("--host", help="The address to listen on. Default: 127.0.0.1.")] = None,
    port: Annotated[
        int | None, typer.Option("--port", min=0, max=65_535, help="The port; 0 is any free one. Default: 8181.")
    ] = None,
    grpc_port: Annotated[
        int | None,
        typer.Option("--grpc-port", min=0, max=65_535, help="The port for gRPC; 0 is any free one. Default: no gRPC."),
    ] = None,
    store: StoreUrl = None,
    warehouse: Annotated[
        str | None, typer.Option("--warehouse", metavar="URL", help="Where tables keep their files.")
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            "--data", metavar="DIR", help="The folder for both, if they are not given. Default: lakepact-data."
        ),
    ] = None,
    tls_cert: Annotated[
        str | None,
        typer.Option("--tls-cert", metavar="FILE", help="The certificate, in PEM: speak TLS. Default: no TLS."),
    ] = None,
    tls_key: Annotated[
        str | None, typer.Option("--tls-key", metavar="FILE", help="The certificate's private key, in PEM.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, max=256, help="How many processes serve. Default: 1.")
    ] = None,
    base_path: Annotated[
        str | None, typer.Option("--base-path", metavar="PATH", help="What every path begins with, such as /catalog.")
    ] = None,
    auth: Annotated[
        str | None,
        typer.Option(
            "--auth",
            metavar="MODES",
            help="How callers are recognised: tokens, oidc or tokens,oidc. Default: none.",
        ),
    ] = None,
    insecure: Annotated[
        bool | None,
        typer.Option("--insecure", help="Listen beyond this machine although nobody is asked for a name."),
    ] = None,
    multi_table_transactions: Annotated[
        bool | None,
        typer.Option(
            "--multi-table-transactions/--no-multi-table-transactions",
            help="Whether one commit may change several tables. Default: it may.",
        ),
    ] = None,
) -> None:
    """Run the catalog server."""
    settings = Settings.load(
        host=host,
        port=port,
        grpc_port=grpc_port,
        store=store,
        warehouse=warehouse,
        data=data,
        tls_cert=tls_cert,
        tls_key=tls_key,
        workers=workers,
        base_path=base_path,
        auth=auth,
        insecure=insecure,
        multi_table_transactions=multi_table_transactions,
    )
    check_exposed(settings)
    # Before a port is taken: nobody should find a server there that cannot speak.
    Certificate.of(settings)
    bound = bind(settings.host, settings.port)
    url = url_of(bound, settings.base_path, tls=bool(settings.tls_cert))
    if settings.grpc_port is None:
        serve_all(settings, bound, ready=lambda: _announce(settings, url))
        return
    with reserve(settings.host, settings.grpc_port) as held:
        found = settings.model_copy(update={"grpc_port": held.getsockname()[1]})
        serve_all(found, bound, ready=lambda: _announce(found, url))


def _announce(settings: Settings, url: str) -> None:
    # The server serves even if nobody can be told.
    with suppress(OSError):
        for line in announcement(settings, url):
            typer.echo(line)


def _absolute(store: str) -> str:
    """A relative path says little to who reads it elsewhere, later."""
    path = store.removeprefix(_RELATIVE)
    return store if path == store or path.startswith("/") else f"{_RELATIVE}{Path.cwd().as_posix()}/{path}"


def _grpc_line(settings: Settings) -> str:
    return f"gRPC listens on {settings.host}:{settings.grpc_port}" + (", with TLS" if settings.tls_cert else "")


def _spark_line(settings: Settings, url: str) -> str:
    """A command that starts Spark SQL on the default warehouse, with all it needs."""
    place = settings.places()[settings.default_warehouse]
    cloud = _CLOUDS.get(urlsplit(place.url).scheme)
    packages = [_ICEBERG.format("spark-runtime-4.1_2.13")]
    confs = {
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "rest",
        "spark.sql.catalog.lake.uri": url,
        "spark.sql.catalog.lake.warehouse": settings.default_warehouse,
        "spark.sql.defaultCatalog": "lake",
    }
    if cloud is not None:
        bundle, file_io = cloud
        packages.append(_ICEBERG.format(bundle))
        confs["spark.sql.catalog.lake.io-impl"] = file_io
    if place.credentials is not None:
        confs["spark.sql.catalog.lake.header.X-Iceberg-Access-Delegation"] = "vended-credentials"
    if settings.auth_modes:
        confs["spark.sql.catalog.lake.token"] = '"$LAKEPACT_TOKEN"'
    return f"spark-sql --packages {','.join(packages)}" + "".join(f" --conf {key}={confs[key]}" for key in confs)


def announcement(settings: Settings, url: str) -> list[str]:
    """What is printed once the server answers: where it is, and one line to try for each engine."""
    name = settings.default_warehouse
    asks = bool(settings.auth_modes)
    spark = _spark_line(settings, url)
    token = ", token='$LAKEPACT_TOKEN'" if asks else ""
    pyiceberg = (
        'python -c "from pyiceberg.catalog import load_catalog; '
        f"print(load_catalog('lake', type='rest', uri='{url}', warehouse='{name}'{token}).list_namespaces())\""
    )
    secret = "CREATE SECRET (TYPE iceberg, TOKEN '$LAKEPACT_TOKEN'); " if asks else ""
    unasked = "" if asks else ", AUTHORIZATION_TYPE 'none'"
    duckdb = (
        f"python -c \"import duckdb; duckdb.sql('''INSTALL iceberg; LOAD iceberg; {secret}"
        f"ATTACH '{name}' AS lake (TYPE iceberg, ENDPOINT '{url}'{unasked})'''); print(duckdb.sql('SHOW ALL TABLES'))\""
    )
    grpc = [] if settings.grpc_port is None else [_grpc_line(settings)]
    return [
        f"Lakepact {__version__} listens on {url}",
        *([f"The web page is at {url}/ui"] if settings.ui else []),
        *grpc,
        f"Store {_absolute(without_password(settings.store))}, "
        + ", ".join(f"warehouse {name} at {without_password(place.url)}" for name, place in settings.places().items()),
        "Try it:" if not asks else "Try it, with a token of `lakepact tokens create` in LAKEPACT_TOKEN:",
        f"  Spark      {spark}",
        f"  PyIceberg  {pyiceberg}",
        f"  DuckDB     {duckdb}",
    ]
