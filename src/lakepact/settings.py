"""Every setting of a Lakepact process, from the environment or a TOML file, checked once at the edge.

`LAKEPACT_<NAME>` in the environment goes before the file, and the file before the default; `setting_sources.py` reads
the file, which is the one `LAKEPACT_CONFIG` names, else `lakepact.toml` in the working directory. The kernel's bounds
appear here under their own names; their defaults and meanings live in `kernel/settings.py` alone. `docs/operations.md`
has the table, and a test keeps the two in step.

Where `store` and `warehouse` are not given they follow from `data`, and the settings hold what follows: nobody who
reads a setting has to know how it came to be. A long module, for it is a list: one place to look.
"""

from __future__ import annotations

import ast
import dataclasses
import difflib
import inspect
import os
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Any, Final, Literal, Self, TypeAlias
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic_core import PydanticCustomError
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from lakepact.apart import check_apart
from lakepact.errors import InvalidSetting
from lakepact.kernel.settings import KernelSettings
from lakepact.setting_conflicts import conflicts
from lakepact.setting_sources import DEFAULT, ENVIRONMENT, FILE, OPTION, PREFIX, config_path, read_file, sources

_NO_SETTINGS: Final = frozenset(
    f"{PREFIX}{name}" for name in ("CONFIG", "URI", "TOKEN", "TOKEN_FILE", "CREDENTIAL", "CA_BUNDLE")
)
"""Variables of the command line and of clients."""

HIDDEN: Final = "***"
_NAMES_SOMEBODY: Final = "names_somebody"

RESERVED_WORDS: Final = frozenset(
    {
        "audit",
        "config",
        "delta-tables",
        "dropped",
        "grants",
        "lakepact",
        "namespaces",
        "oauth",
        "reachable",
        "state",
        "tables",
        "tokens",
        "transactions",
        "views",
        "whoami",
    }
)
"""No warehouse has one of these names. A path `/v1/<word>/...` has no prefix if the word is one of them; and the cells
below `lakepact/` belong to no warehouse."""

FOLLOWS: Final[Mapping[str, str]] = {
    "store": "sqlite:///<data>/lakepact.db",
    "warehouse": "file://<absolute data>/warehouse",
}
"""The settings that follow from `data` where they are not given, as the docs write them."""

ACCOUNT: Final = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"
"""The names that accounts have."""

_WAREHOUSE_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_WAREHOUSE_SCHEMES: Final = ("file", "s3", "gs", "az", "abfss", "memory")
_BASE_PATH: Final = re.compile(r"(/[A-Za-z0-9._~-]+)*")
_TABLES: Final = ("store_options", "warehouse_options", "warehouse_credentials", "warehouses")
"""What is one table, though several sources give parts of it. Beside anything in it may be a secret."""

_MAY_BE_ZERO: Final = frozenset(
    {
        "backoff_s",
        "cached_bytes",
        "max_ahead_s",
        "max_backoff_s",
        "resends",
        "slack_s",
        "trim_after_s",
    }
)
_SECRET_WORDS: Final = ("secret", "password", "token", "credential", "account_key", "access_key", "sas")
_AUTH_MODES: Final = frozenset({"none", "tokens", "oidc"})
_ASYMMETRIC: Final = frozenset(
    {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519"}
)
_IN_WORDS: Final[Mapping[str, str]] = {
    "int_parsing": "it should be a whole number",
    "int_type": "it should be a whole number",
    "int_from_float": "it should be a whole number",
    "float_parsing": "it should be a number",
    "float_type": "it should be a number",
    "bool_parsing": "it should be true or false",
    "bool_type": "it should be true or false",
    "string_type": "it should be a text, in quotes",
}
"""What is wrong with a value, by the name that Pydantic has for it, where its own words are those of programmers."""

_DEFAULTS: Final = KernelSettings()


def _docstrings(owner: type) -> dict[str, str]:
    """The string under each field of a class. Python does not keep them, so they are read from the source."""
    body = ast.parse(textwrap.dedent(inspect.getsource(owner))).body[0]
    assert isinstance(body, ast.ClassDef)
    found: dict[str, str] = {}
    for field, text in zip(body.body, body.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(text, ast.Expr):
            found[field.target.id] = inspect.cleandoc(ast.literal_eval(text.value))
    return found


_KERNEL_DOCSTRINGS: Final = _docstrings(KernelSettings)


def _bound(name: str) -> Any:
    """A bound of the kernel, with the kernel's default and meaning."""
    default, description = getattr(_DEFAULTS, name), _KERNEL_DOCSTRINGS[name]
    if name in _MAY_BE_ZERO:
        return Field(default=default, description=description, ge=0, allow_inf_nan=False)
    return Field(default=default, description=description, gt=0, allow_inf_nan=False)


MirrorEngine: TypeAlias = Literal["delta_log", "duckdb"]


class StorageCredentials(BaseModel):
    """How clients reach the storage of a warehouse without keys of their own. `docs/storage-credentials.md` says more.

    The server's own identity is in the warehouse's options, or where each cloud usually keeps it.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    role_arn: str | None = Field(default=None, min_length=20)
    """S3: the role whose short-lived keys are given, narrowed to one table."""
    external_id: str | None = None
    """S3: what the role's trust policy asks for beside the server's identity."""
    kms_keys: list[str] = Field(default_factory=list)
    """S3: the ARNs of the keys that encrypt the bucket."""
    remote_signing: bool = False
    """S3: whether requests are signed one by one, for clients that ask for it."""
    unsafe_sign_with_server_keys: bool = False
    """S3: whether to sign without `role_arn` at an endpoint not of Amazon's, which must refuse unsigned headers."""
    sts_endpoint: str | None = None
    """Where short-lived credentials are to be had, if not at the cloud's usual address."""
    client_endpoint: str | None = None
    """Where clients find the storage, if not where the server does."""
    authority: str | None = None
    """Azure: where the server's identity is proved, if not at the usual address."""
    azure_scope: Literal["directory", "container"] = "directory"
    """Azure: `directory` needs an account with a hierarchical namespace; `container` gives more than one table."""
    duration_s: int = Field(default=3_600, ge=900, le=43_200)
    """How long a credential lives. Google decides by itself."""

    @field_validator("sts_endpoint", "client_endpoint", "authority")
    @classmethod
    def _is_http(cls, value: str | None) -> str | None:
        if value is not None and urlsplit(value).scheme not in ("http", "https"):
            raise ValueError("it is a URL that begins with https:// or http://")
        return value

    def shown(self) -> dict[str, Any]:
        values = self.model_dump()
        return {**values, "external_id": HIDDEN} if self.external_id is not None else values


class Place(BaseModel):
    """Where a warehouse is."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    url: str
    options: dict[str, str] = Field(default_factory=dict)
    mirrors: list[MirrorEngine] | None = None
    """Engines that follow its tables. None: those of the setting `mirrors`."""
    credentials: StorageCredentials | None = None
    """How clients reach its storage without keys of their own. None: they need their own."""

    account: str = Field(default="default", pattern=ACCOUNT)
    """The tenant who owns it."""

    @field_validator("url")
    @classmethod
    def _is_url(cls, value: str) -> str:
        return _warehouse_url(value)


class Settings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="forbid", frozen=True, validate_default=True)

    data: str = Field(
        default="lakepact-data",
        description="The folder in which the store and the default warehouse are, if they are not given.",
        min_length=1,
    )
    store: str = Field(
        default="",
        description="The URL of the store that holds cells and records.",
    )
    store_options: dict[str, str] = Field(
        default_factory=dict,
        description="What the store needs beside its URL, such as `endpoint` and `region`. As JSON in the environment.",
    )

    warehouse: str = Field(
        default="",
        description="The URL of the default warehouse, where tables keep their files.",
    )
    warehouse_options: dict[str, str] = Field(
        default_factory=dict,
        description="What the default warehouse needs beside its URL, as `store_options`.",
    )
    warehouse_credentials: StorageCredentials | None = Field(
        default=None,
        description="How clients reach the storage of the default warehouse; see "
        "[storage credentials](storage-credentials.md). As JSON in the environment.",
    )
    warehouse_account: str = Field(
        default="default",
        description="The account that owns the default warehouse. Others have `account` among their own settings.",
        pattern=ACCOUNT,
    )
    warehouses: dict[str, Place] = Field(
        default_factory=dict,
        description="More warehouses by name, each with `url`, `options`, `credentials`. As JSON in the environment.",
    )
    default_warehouse: str = Field(
        default="main",
        description="The name of the warehouse that a client gets who names none.",
    )

    host: str = Field(default="127.0.0.1", description="The address the server listens on.", min_length=1)
    port: int = Field(default=8181, description="The port the server listens on. 0 is any free one.", ge=0, le=65_535)
    grpc_port: int | None = Field(
        default=None,
        description="The port for gRPC, beside `port`. 0 is any free one. Without it there is no gRPC.",
        ge=0,
        le=65_535,
    )
    workers: int = Field(default=1, description="How many processes serve behind one socket.", ge=1, le=256)
    tls_cert: str = Field(
        default="",
        description="A file with the server's certificate, and those above it, in PEM: then it speaks TLS only.",
    )
    tls_key: str = Field(default="", description="The file with that certificate's private key, in PEM, not encrypted.")
    base_path: str = Field(default="", description="What every path begins with, such as `/catalog`.")
    max_body_bytes: int = Field(
        default=16 * 1024 * 1024, description="The size of one request's body, decompressed.", gt=0
    )
    max_metadata_bytes: int = Field(
        default=16 * 1024 * 1024,
        description="The size of the metadata that one commit may give a table or view, as JSON.",
        gt=0,
    )
    max_head_bytes: int = Field(
        default=64 * 1024, description="The size of one request's first line and headers.", gt=0
    )
    max_tables: int = Field(default=100, description="Tables one commit may change.", gt=0)
    max_updates: int = Field(default=1_000, description="Updates one commit may make to one table.", gt=0)
    request_deadline_s: float = Field(
        default=30.0, description="How long one request may take.", gt=0, allow_inf_nan=False
    )
    lame_duck_s: float = Field(
        default=5.0,
        description="How long a server still serves after SIGTERM, not ready, before it accepts no more connections.",
        ge=0,
        le=600,
        allow_inf_nan=False,
    )
    watchdog_s: float = Field(
        default=30.0,
        description="How long the event loop of a process may be stuck before it is ended: 5 or more. 0: for ever.",
        ge=0,
        allow_inf_nan=False,
    )
    held_wait_s: float = Field(
        default=5.0,
        description="How long a change waits for a table that a prepared transaction holds, before it is answered 503. "
        "The same on every store.",
        ge=0,
        allow_inf_nan=False,
    )
    multi_table_transactions: bool = Field(
        default=True, description="Whether one commit may change several tables. Without it that is 406."
    )
    idempotency_lifetime_s: int = Field(
        default=3_600, description="How long clients may repeat a request under the same key, as told to them.", gt=0
    )
    metadata_cache_bytes: int = Field(
        default=256 * 1024 * 1024, description="Memory for table and view metadata. It saves reading files.", ge=0
    )
    upkeep_interval_s: float = Field(
        default=60.0, description="How often a server looks whether upkeep is due.", gt=0, allow_inf_nan=False
    )
    audit: Literal["off", "changes", "all"] = Field(
        default="changes",
        description="What of those who have a name goes into the audit trail: `off`, `changes` (also those that were "
        "denied) or `all` (also reads).",
    )
    audit_interval_s: float = Field(
        default=5.0, description="How often the audit trail is written.", gt=0, allow_inf_nan=False
    )
    receipts: bool = Field(
        default=True, description="Whether every committed change leaves a receipt in the warehouse."
    )
    reconcile_interval_s: float = Field(
        default=900.0,
        description="How often a server looks for committed changes without a receipt.",
        gt=0,
        allow_inf_nan=False,
    )
    reconcile_depth: int = Field(
        default=10_000, description="Versions of one table that a pass of the reconciler looks at.", gt=0
    )
    pack_after_s: float = Field(
        default=21_600.0,
        description="How long a day has ended before its receipts are packed into segments.",
        ge=7_200,
        allow_inf_nan=False,
    )
    loose_receipt_days: int = Field(
        default=90,
        description="How long receipts are kept as single files, once their day is packed and projected.",
        ge=2,
    )
    receipt_days: int = Field(
        default=0,
        description="How long days of receipts are kept at all, once they are projected: 32 or more. 0: for ever.",
        ge=0,
    )
    drop_retention_s: float = Field(
        default=604_800.0,
        description="How long a dropped table keeps its location, and its files if they are to be purged.",
        ge=0,
        allow_inf_nan=False,
    )
    abandoned_retention_s: float = Field(
        default=604_800.0,
        description="How long new tables of a transaction that was given up keep their files.",
        ge=0,
        allow_inf_nan=False,
    )
    gc_interval_s: float = Field(
        default=3_600.0,
        description="How often a server collects what dropped tables and abandoned transactions left. 0: never.",
        ge=0,
        allow_inf_nan=False,
    )
    expire_snapshots: bool = Field(
        default=False, description="Whether a server expires snapshots, by the tables' own `history.expire.*`."
    )
    ui: bool = Field(default=True, description="Whether the server shows its web page, at `/ui`.")
    mirrors: list[MirrorEngine] = Field(
        default=["delta_log"],
        description="Which engines follow tables: `delta_log`, `duckdb`. A warehouse or a table may say otherwise.",
    )
    mirror_interval_s: float = Field(
        default=30.0,
        description="How often a server looks whether a mirror has been left behind.",
        gt=0,
        allow_inf_nan=False,
    )
    mirror_max_attempts: int = Field(
        default=0,
        description="Failures in a row after which a mirror is dead until `lakepact mirror retry`. 0: it never is.",
        ge=0,
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="What is logged: `debug`, `info`, `warning` or `error`."
    )

    auth: str = Field(
        default="none",
        description="How callers are recognised: `tokens`, `oidc`, `tokens,oidc`, or `none`: all may do everything.",
    )
    insecure: bool = Field(
        default=False, description="Whether to listen beyond this machine although nobody is asked for a name."
    )
    auth_secret: str = Field(
        default="",
        description="Mixed into the server's own signing keys: without it a copy of the store is enough to sign. "
        "The same for all replicas.",
    )
    public_url: str = Field(
        default="",
        description="Where people reach the server, if elsewhere. With https, or with `tls_cert` alone, cookies are "
        "secure.",
    )
    open_metrics: bool = Field(
        default=False,
        description="Whether `/metrics` answers without a token. Else it needs one of an administrator.",
    )
    open_docs: bool = Field(default=True, description="Whether `/docs` and `/openapi.json` answer without a token.")
    expired_status: Literal[401, 419] = Field(
        default=401, description="What an expired token is answered with. The specification prefers 401 and allows 419."
    )
    token_cache_s: float = Field(
        default=5.0,
        description="How long a token that was good is taken for good: a revoked one ends everywhere within this time.",
        ge=0,
        le=300,
    )
    token_grace_s: float = Field(
        default=86_400.0, description="How long a rotated token's old secret still counts.", ge=0, allow_inf_nan=False
    )
    token_max_s: float = Field(
        default=0.0, description="The longest life of an API token. 0: it may live for ever.", ge=0, allow_inf_nan=False
    )
    access_token_s: int = Field(
        default=3_600, description="How long an access token lives that `/v1/oauth/tokens` gives out.", ge=1, le=86_400
    )
    session_s: float = Field(
        default=43_200.0, description="How long somebody stays logged in to the web page.", gt=0, le=30 * 86_400
    )
    oidc_issuer: str = Field(default="", description="The issuer of OIDC tokens, exactly as their `iss` says it.")
    oidc_audience: str = Field(
        default="",
        description="Audiences, separated by commas: a token must be for one of them.",
    )
    oidc_jwks_url: str = Field(
        default="", description="Where the issuer's keys are. Without it the issuer's own description says where."
    )
    oidc_algorithms: str = Field(
        default="RS256,RS384,RS512,PS256,PS384,PS512,ES256,ES384,ES512,EdDSA,Ed25519",
        description="How OIDC tokens may be signed, separated by commas. Asymmetric algorithms only.",
    )
    oidc_leeway_s: float = Field(
        default=60.0, description="How far the issuer's clock and ours may be apart.", ge=0, le=600
    )
    oidc_name_claim: str = Field(
        default="sub", description="The claim that names the principal. Dots lead into objects.", min_length=1
    )
    oidc_account_claim: str = Field(
        default="", description="The claim that names the account. Without it everybody is in account `default`."
    )
    oidc_groups_claim: str = Field(default="groups", description="The claim that lists the principal's groups.")
    oidc_admin_groups: str = Field(
        default="", description="Groups whose members administer their account, separated by commas."
    )
    oidc_client_id: str = Field(
        default="",
        description="What this server is to the issuer: people then log in to the web page there. Needs `public_url`.",
    )
    oidc_client_secret: str = Field(
        default="", description="That client's secret. Without it the client is a public one; PKCE is always used."
    )
    oidc_scopes: str = Field(
        default="openid profile", description="What the login asks the issuer for, separated by spaces."
    )
    rate_limit_per_s: float = Field(
        default=0.0,
        description="Requests a second that one principal may send to one process, or one address without a name. "
        "0: no limit.",
        ge=0,
        allow_inf_nan=False,
    )
    rate_limit_burst: int = Field(
        default=0, description="How many of them may come at once. 0: those of two seconds.", ge=0
    )

    lease_s: float = _bound("lease_s")
    open_ttl_s: float = _bound("open_ttl_s")
    max_ttl_s: float = _bound("max_ttl_s")
    prepared_s: float = _bound("prepared_s")
    deadline_s: float = _bound("deadline_s")
    retryable_s: float = _bound("retryable_s")
    horizon_days: int = _bound("horizon_days")
    max_ahead_s: float = _bound("max_ahead_s")
    slack_s: float = _bound("slack_s")
    trim_after_s: float = _bound("trim_after_s")
    max_cells: int = _bound("max_cells")
    max_value_bytes: int = _bound("max_value_bytes")
    max_transaction_bytes: int = _bound("max_transaction_bytes")
    max_key_bytes: int = _bound("max_key_bytes")
    max_page: int = _bound("max_page")
    attempts: int = _bound("attempts")
    resends: int = _bound("resends")
    backoff_s: float = _bound("backoff_s")
    max_backoff_s: float = _bound("max_backoff_s")
    cached_bytes: int = _bound("cached_bytes")
    write_format: int = _bound("write_format")

    @field_validator("expired_status", mode="before")
    @classmethod
    def _number_of_text(cls, value: object) -> object:
        """The environment has texts only, and a choice of numbers takes none."""
        return int(value) if isinstance(value, str) and value.isdecimal() else value

    @field_validator("receipt_days")
    @classmethod
    def _outlasts_waiting(cls, value: int) -> int:
        if 0 < value < 32:
            raise ValueError(
                "receipts of a transaction may wait a month for the rest of it: keep them for 32 days, or 0 for ever"
            )
        return value

    @field_validator("watchdog_s")
    @classmethod
    def _outlasts_pauses(cls, value: float) -> float:
        if 0 < value < 5:
            raise ValueError("pauses of a few seconds happen on a busy machine: it is at least 5, or 0 for no watchdog")
        return value

    @field_validator("store")
    @classmethod
    def _is_url(cls, value: str) -> str:
        if not urlsplit(value).scheme:
            raise ValueError("a store is a URL such as sqlite:///lakepact-data/lakepact.db or s3://bucket/prefix")
        return value

    @field_validator("warehouse")
    @classmethod
    def _is_warehouse_url(cls, value: str) -> str:
        return _warehouse_url(value)

    @field_validator("default_warehouse")
    @classmethod
    def _is_warehouse_name(cls, value: str) -> str:
        return _warehouse_name(value)

    @field_validator("warehouses")
    @classmethod
    def _are_warehouse_names(cls, value: dict[str, Place]) -> dict[str, Place]:
        for name in value:
            _warehouse_name(name)
        return value

    @field_validator("base_path")
    @classmethod
    def _is_path(cls, value: str) -> str:
        path = value.rstrip("/")
        if not _BASE_PATH.fullmatch(path):
            raise ValueError("a base path is plain, and begins with a slash, as in /catalog")
        return path

    @field_validator("auth")
    @classmethod
    def _are_modes(cls, value: str) -> str:
        modes = _modes(value)
        if not modes or not modes <= _AUTH_MODES or (len(modes) > 1 and "none" in modes):
            raise ValueError("it is none, tokens, oidc, or tokens,oidc")
        return ",".join(sorted(modes, reverse=True))

    @field_validator("oidc_algorithms")
    @classmethod
    def _are_asymmetric(cls, value: str) -> str:
        wrong = {one.strip() for one in value.split(",")} - _ASYMMETRIC
        if wrong:
            raise ValueError(f"only asymmetric algorithms can be listed: {', '.join(sorted(_ASYMMETRIC))}")
        return value

    @field_validator("oidc_scopes")
    @classmethod
    def _has_openid(cls, value: str) -> str:
        if "openid" not in value.split():
            raise ValueError("openid must be among them: without it the issuer does not say who it was")
        return " ".join(value.split())

    @field_validator("public_url")
    @classmethod
    def _is_public_url(cls, value: str) -> str:
        if value and (urlsplit(value).scheme not in ("http", "https") or not urlsplit(value).netloc):
            raise ValueError("it is a URL such as https://catalog.example.com")
        return value

    @field_validator("public_url", "oidc_issuer", "oidc_jwks_url", mode="before")
    @classmethod
    def _names_nobody(cls, value: Any) -> Any:
        if isinstance(value, str) and "@" in value.partition("://")[2].partition("/")[0]:
            # Without the value: the error would repeat what should not be there.
            raise PydanticCustomError(_NAMES_SOMEBODY, "it has a user or a password before its host; leave them out")
        return value

    @field_validator("auth_secret")
    @classmethod
    def _is_long_enough(cls, value: str) -> str:
        if value and len(value) < 32:
            raise ValueError("it is at least 32 characters, from a random generator")
        return value

    @model_validator(mode="after")
    def _names_its_issuer(self) -> Self:
        if "oidc" in self.auth_modes and not (self.oidc_issuer and self.oidc_audience):
            raise ValueError("auth = oidc needs oidc_issuer and oidc_audience: from whom, and for whom, a token is")
        if "oidc" in self.auth_modes and self.oidc_client_id and not self.public_url:
            raise ValueError("oidc_client_id needs public_url: where the issuer sends people back to")
        if self.oidc_client_secret and not self.oidc_client_id:
            raise ValueError("oidc_client_secret needs oidc_client_id: whose secret it is")
        return self

    @model_validator(mode="after")
    def _has_a_key(self) -> Self:
        if bool(self.tls_cert) != bool(self.tls_key):
            raise ValueError("tls_cert and tls_key go together: the certificate's file, and its key's")
        return self

    @model_validator(mode="after")
    def _agree(self) -> Self:
        contradictions = list(conflicts(self))
        if contradictions:
            raise ValueError("; ".join(contradictions))
        return self

    @model_validator(mode="after")
    def _lie_apart(self) -> Self:
        try:
            check_apart(
                (self.store, self.store_options),
                {name: (place.url, place.options) for name, place in self.places().items()},
            )
        except InvalidSetting as error:
            raise ValueError(str(error)) from None
        return self

    @model_validator(mode="before")
    @classmethod
    def _follow(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Fill in what follows from other settings. Runs on what all sources gave together."""
        values = dict(values)
        warehouses, default = values.get("warehouses"), values.get("default_warehouse", "main")
        if isinstance(warehouses, Mapping) and default in warehouses:
            place = warehouses[default]
            if isinstance(place, Mapping):
                given = place.get("url", ""), place.get("options", {})
                # Equal is fine: that is how settings look that are handed on to another process.
                if (
                    values.setdefault("warehouse", given[0]),
                    values.setdefault("warehouse_options", given[1]),
                ) != given:
                    raise ValueError(
                        f"the default warehouse {default} is given twice, by `warehouse` and by "
                        f"`warehouses.{default}`; leave one out"
                    )
        data = values.get("data", cls.model_fields["data"].default)
        if isinstance(data, str) and data:
            for name, url in _following(data).items():
                values.setdefault(name, url)
        return values

    @property
    def uses_data(self) -> bool:
        """Whether anything is kept in the folder `data`."""
        following = _following(self.data)
        return self.store == following["store"] or self.warehouse == following["warehouse"]

    @property
    def auth_modes(self) -> frozenset[str]:
        """How callers are recognised. Empty: nobody is asked for a name."""
        return _modes(self.auth) - {"none"}

    @property
    def reached_by_https(self) -> bool:
        """Whether browsers see the server over https."""
        return urlsplit(self.public_url).scheme == "https" if self.public_url else bool(self.tls_cert)

    def places(self) -> dict[str, Place]:
        """Every warehouse by name, the default one first."""
        default = Place(
            url=self.warehouse,
            options=self.warehouse_options,
            credentials=self.warehouse_credentials,
            account=self.warehouse_account,
        )
        return {self.default_warehouse: default, **self.warehouses}

    def mirrors_of(self, warehouse: str) -> tuple[str, ...]:
        """The engines that follow the tables of this warehouse, unless a table says otherwise."""
        place = self.warehouses.get(warehouse)
        return tuple(place.mirrors if place is not None and place.mirrors is not None else self.mirrors)

    @classmethod
    def load(cls, **given: Any) -> Self:
        """The settings of this process. `given` goes before everything; a value of None means "not given"."""
        _check_environment(cls.model_fields)
        given = {name: value for name, value in given.items() if value is not None}
        try:
            return cls(**given)
        except ValidationError as error:
            raise InvalidSetting(_explained(error, given)) from None
        except SettingsError as error:
            # What cannot be taken apart before it is looked at: tables, which are JSON in the environment.
            named = re.search(r'field "(\w+)"', str(error))
            variable = f"{PREFIX}{named[1].upper()}" if named else "a variable"
            raise InvalidSetting(f'{variable} is not JSON; write it as in \'{{"region": "eu-central-1"}}\'') from None

    def sources(self, **given: Any) -> dict[str, str]:
        """Where the value of each setting comes from, if `load` was given these."""
        found = _sources([name for name, value in given.items() if value is not None])
        if self.default_warehouse in self.warehouses:
            for name in ("warehouse", "warehouse_options"):
                found[name] = found["warehouses"] if found[name] == (DEFAULT,) else found[name]
        return {name: " and ".join(every) for name, every in found.items()}

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, env_settings, InitSettingsSource(settings_cls, read_file())

    def kernel(self) -> KernelSettings:
        """The part of the settings that the kernel knows."""
        return KernelSettings(**{field.name: getattr(self, field.name) for field in dataclasses.fields(KernelSettings)})

    def shown(self) -> dict[str, Any]:
        """Every setting by name, fit for other people's eyes: no password, no key."""
        values = self.model_dump()
        for name in ("auth_secret", "oidc_client_secret"):
            values[name] = HIDDEN if values[name] else ""
        values["store"] = without_password(self.store)
        values["store_options"] = _without_secrets(self.store_options)
        values["warehouse"] = without_password(self.warehouse)
        for name in ("public_url", "oidc_issuer", "oidc_jwks_url"):
            values[name] = without_password(values[name]) if values[name] else ""
        values["warehouse_options"] = _without_secrets(self.warehouse_options)
        if self.warehouse_credentials is not None:
            values["warehouse_credentials"] = self.warehouse_credentials.shown()
        values["warehouses"] = {
            name: {
                "url": without_password(place.url),
                "options": _without_secrets(place.options),
                **({} if place.credentials is None else {"credentials": place.credentials.shown()}),
                "account": place.account,
            }
            for name, place in self.warehouses.items()
        }
        return values


def _modes(auth: str) -> frozenset[str]:
    return frozenset(one.strip() for one in auth.split(",") if one.strip())


def without_password(url: str) -> str:
    """The URL, fit for a log: a password or a query value that may be a secret is left out."""
    parts = urlsplit(url)
    if parts.password is not None:
        user, _, host = parts.netloc.rpartition("@")
        parts = parts._replace(netloc=f"{user.partition(':')[0]}:{HIDDEN}@{host}")
    if any(word in parts.query.lower() for word in _SECRET_WORDS):
        parts = parts._replace(query=HIDDEN)
    # `geturl` drops an empty host, and `sqlite:///x` would lose two slashes.
    prefix = f"{parts.scheme}://{parts.netloc}" if "://" in url else f"{parts.scheme}:"
    return prefix + parts.path + (f"?{parts.query}" if parts.query else "")


def _without_secrets(options: Mapping[str, str]) -> dict[str, str]:
    return {
        name: HIDDEN if any(word in name.lower() for word in _SECRET_WORDS) else value
        for name, value in options.items()
    }


def _warehouse_url(value: str) -> str:
    scheme, separator, _ = value.partition("://")
    if not separator or scheme not in _WAREHOUSE_SCHEMES:
        raise ValueError("a warehouse is a URL such as file:///absolute/folder or s3://bucket/prefix")
    return value


def _warehouse_name(value: str) -> str:
    if not _WAREHOUSE_NAME.fullmatch(value):
        raise ValueError(
            f"{value!r} cannot be the name of a warehouse; use lower-case letters, digits, '_' and '-', at most 63"
        )
    if value in RESERVED_WORDS:
        raise ValueError(f"{value!r} cannot be the name of a warehouse, as paths have a meaning for it; choose another")
    return value


def _following(data: str) -> dict[str, str]:
    """What follows from `data`, by setting."""
    return {
        "store": f"sqlite:///{_in_url(data)}/lakepact.db",
        "warehouse": f"file://{_in_url(os.path.abspath(data))}/warehouse",
    }


def _in_url(path: str) -> str:
    # Only what would end the path or be decoded: engines take the rest of a file URL as it is written.
    return path.replace("%", "%25").replace("?", "%3F").replace("#", "%23")


def _check_environment(settings: Iterable[str]) -> None:
    """A variable that is almost a setting was meant to be one. Others are other programs' business."""
    names = [name.upper() for name in settings]
    for variable in os.environ:
        name = variable.removeprefix(PREFIX)
        if name == variable or name in names or variable in _NO_SETTINGS:
            continue
        if meant := next((one for one in names if _is_one_slip(name, one)), None):
            raise InvalidSetting(f"there is no setting {variable}; did you mean {PREFIX}{meant}?")


def _is_one_slip(written: str, meant: str) -> bool:
    """Whether one letter is missing, too many, or another one, or two are in each other's place."""
    start = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(written, meant, strict=False)))
    one, other = written[start:], meant[start:]
    swapped = one[:2][::-1] + one[2:]
    return one[1:] == other or one == other[1:] or one[1:] == other[1:] or swapped == other


def _explained(error: ValidationError, given: Iterable[str]) -> str:
    found = _sources(given)
    lines = []
    for problem in error.errors():
        place, said = problem["loc"], problem["msg"].removeprefix("Value error, ")
        if not place:
            lines.append(said)
            continue
        name, origin = ".".join(map(str, place)), _origin(found, str(place[0]))
        written = f" (from {origin})" if origin else ""
        if problem["type"] == "extra_forbidden":
            lines.append(f"{name}: there is no such setting{written}{_meant(place)}")
        elif problem["type"] == "missing":
            lines.append(f"{name} is missing" + (f" in {origin}" if origin else ""))
        else:
            secret = place[0] in _TABLES or any(word in name.lower() for word in _SECRET_WORDS)
            secret = secret or problem["type"] == _NAMES_SOMEBODY
            value = HIDDEN if secret else repr(problem["input"])
            said = _IN_WORDS.get(problem["type"], said.replace("Input should", "it should"))
            lines.append(f"{name} = {value}: {said}{written}")
    return "; ".join(lines) + ". docs/operations.md lists every setting"


def _sources(given: Iterable[str]) -> dict[str, tuple[str, ...]]:
    found = sources(Settings.model_fields, given, read_file())
    return {name: every if name in _TABLES else every[:1] for name, every in found.items()}


def _origin(found: Mapping[str, Sequence[str]], name: str) -> str:
    """Where somebody wrote it, for the one who is to correct it. What is no setting can only be in the file."""
    words = {
        OPTION: "the command line",
        ENVIRONMENT: f"{PREFIX}{name.upper()}",
        FILE: str(config_path()),
        DEFAULT: "",
    }
    return " and ".join(filter(None, (words[one] for one in found.get(name, (FILE,)))))


def _meant(place: Sequence[int | str]) -> str:
    """The setting that was perhaps meant by one that is not there."""
    *above, written = map(str, place)
    owner: type[BaseModel] = Settings
    if above:
        owner = StorageCredentials if above[-1] in ("credentials", "warehouse_credentials") else Place
    close = next((one for one in owner.model_fields if _is_one_slip(written.lower(), one)), None)
    meant = close or next(iter(difflib.get_close_matches(written.lower(), owner.model_fields, 1, 0.75)), None)
    return "" if meant is None else f", write {'.'.join([*above, meant])} if that is what you mean"
