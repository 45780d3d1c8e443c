"""What a Spark session needs to know of Lakepact, as plain settings; and what a session that is there knows already."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lakepact.client.token import CREDENTIAL_VARIABLE, given_token, text_of
from lakepact.errors import InvalidSetting
from lakepact.spark.runtimes import (
    DELTA_CATALOG,
    DELTA_EXTENSIONS,
    EXCLUDES,
    ICEBERG_EXTENSIONS,
    check_fits,
    jars_in,
    runtime_for,
)

SPARK_CATALOG: Final = "org.apache.iceberg.spark.SparkCatalog"
REST_CATALOG: Final = "org.apache.iceberg.rest.RESTCatalog"
DEFAULT_CATALOG: Final = "lake"
PREFIX: Final = "spark.sql.catalog."
SESSION_CATALOG: Final = PREFIX + "spark_catalog"
EXTENSIONS: Final = "spark.sql.extensions"
PACKAGES: Final = "spark.jars.packages"

# Nothing is cached in a catalog: a publish changes tables behind Spark's back.
UNCACHED: Final[Mapping[str, str]] = {"cache-enabled": "false", "rest-metrics-reporting-enabled": "false"}

REDACTED: Final = "spark.redaction.regex"
_SECRETS: Final = "(?i)secret|password|token|access[.]?key|credential"

_LISTS: Final = (EXTENSIONS, PACKAGES, "spark.jars", "spark.jars.excludes")
"""Settings that are lists, to which others may have added something."""


@dataclass(frozen=True, slots=True)
class CatalogSettings:
    """A catalog of a session that is at a REST server."""

    name: str
    options: Mapping[str, str]

    @property
    def uri(self) -> str:
        return self.options.get("uri", "").rstrip("/")

    @property
    def warehouse(self) -> str | None:
        """None: whatever is the server's default."""
        return self.options.get("warehouse") or None

    @property
    def token(self) -> str | None:
        return self.options.get("token")

    @property
    def credential(self) -> str | None:
        return self.options.get("credential")

    @property
    def oauth2_server_uri(self) -> str | None:
        return self.options.get("oauth2-server-uri")

    @property
    def headers(self) -> dict[str, str]:
        start = "header."
        return {key.removeprefix(start): value for key, value in self.options.items() if key.startswith(start)}

    @property
    def cached(self) -> bool:
        return self.options.get("cache-enabled", "true").lower() != "false"

    def at(self, warehouse: str) -> CatalogSettings:
        """The same catalog at another warehouse, such as one inside a transaction."""
        return CatalogSettings(self.name, {**self.options, **UNCACHED, "warehouse": warehouse})

    def to_conf(self) -> dict[str, str]:
        prefix = PREFIX + self.name
        return {prefix: SPARK_CATALOG, **{f"{prefix}.{key}": value for key, value in self.options.items()}}


def catalog_settings(
    name: str, uri: str, warehouse: str, token: str | None = None, credential: str | None = None
) -> CatalogSettings:
    options = {"type": "rest", "uri": uri, "warehouse": warehouse, **UNCACHED}
    if credential is not None:
        # Without this Iceberg guesses the same, and complains.
        options |= {"credential": credential, "oauth2-server-uri": f"{uri.rstrip('/')}/v1/oauth/tokens"}
    elif token is not None:
        options["token"] = text_of(token) or ""
    return CatalogSettings(name, options)


def rest_catalogs(settings: Mapping[str, str]) -> tuple[CatalogSettings, ...]:
    """The catalogs of these settings that are at a REST server, by name."""
    names = sorted(
        key.removeprefix(PREFIX)
        for key, value in settings.items()
        if key.startswith(PREFIX) and "." not in key.removeprefix(PREFIX) and value == SPARK_CATALOG
    )
    found = []
    for name in names:
        start = f"{PREFIX}{name}."
        options = {key.removeprefix(start): value for key, value in settings.items() if key.startswith(start)}
        if options.get("type", "").lower() == "rest" or options.get("catalog-impl") == REST_CATALOG:
            found.append(CatalogSettings(name, options))
    return tuple(found)


def chosen_catalog(catalogs: Iterable[CatalogSettings], current: str) -> CatalogSettings:
    """The catalog that is meant if nobody says: the current one, or the only one."""
    by_name = {catalog.name: catalog for catalog in catalogs}
    if current in by_name:
        return by_name[current]
    if len(by_name) == 1:
        return next(iter(by_name.values()))
    known = f"it has several: {', '.join(sorted(by_name))}" if by_name else "it has no catalog at a REST server"
    raise InvalidSetting(
        f"it is not clear where the catalog server of this Spark session is ({known}). Say it: "
        f"lakepact.spark.connect(spark, uri='http://localhost:8181', warehouse='main')"
    )


def conf(
    uri: str,
    *,
    warehouse: str = "main",
    catalog: str = DEFAULT_CATALOG,
    token: str | None = None,
    credential: str | None = None,
    jars: str | Path | None = None,
    spark_version: str | None = None,
) -> dict[str, str]:
    """Every setting for a session that uses Lakepact as catalog `lake`, the default one.

    `jars` is a folder with the runtimes, for networks without a registry; otherwise Spark fetches them by their Maven
    coordinates, once, and keeps them. `spark_version` is that of the installed PySpark unless given. `token` and
    `credential` are as for `lakepact.connect`; with neither, they are those of the environment.
    """
    if token and credential:
        raise InvalidSetting("both a token and a credential were given; give one of the two")
    if credential is None and not token:
        token, credential = given_token(None), os.environ.get(CREDENTIAL_VARIABLE) or None
    if spark_version is None:
        import pyspark

        spark_version = pyspark.__version__
    runtime = runtime_for(spark_version)
    settings = {
        EXTENSIONS: ICEBERG_EXTENSIONS,
        "spark.sql.defaultCatalog": catalog,
        **catalog_settings(catalog, uri, warehouse, token, credential).to_conf(),
        # Spark shows its settings to whoever sees its pages, and knows tokens for secrets, but not credentials.
        **({} if credential is None else {REDACTED: _SECRETS}),
    }
    # Without Delta's own catalog as the session's, Delta refuses to read or write anything.
    delta = {EXTENSIONS: f"{ICEBERG_EXTENSIONS},{DELTA_EXTENSIONS}", SESSION_CATALOG: DELTA_CATALOG}
    if jars is None:
        fetched = {PACKAGES: ",".join(runtime.packages), "spark.jars.excludes": ",".join(EXCLUDES)}
        return {**settings, **delta, **fetched}
    found = jars_in(jars, runtime)
    # Spark complains at every start about an extension that it cannot find.
    with_delta = any(jar.name.startswith(runtime.delta.split(":")[1]) for jar in found)
    return {**settings, **(delta if with_delta else {}), "spark.jars": ",".join(map(str, found))}


def merged(own: Mapping[str, str], others: Mapping[str, str], spark_version: str) -> dict[str, str]:
    """Both settings: where they are lists, everything of both; where not, those of the others, who asked for them."""
    for key in (PACKAGES, "spark.jars"):
        check_fits(others.get(key, "").split(","), runtime_for(spark_version))
    lists = {
        key: ",".join(dict.fromkeys(one for text in (others[key], own[key]) for one in text.split(",") if one))
        for key in _LISTS
        if key in own and key in others
    }
    return {**own, **others, **lists}
