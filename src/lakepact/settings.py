"""Every setting of a Lakepact process, from the environment or a TOML file, checked once at the edge.

`LAKEPACT_<NAME>` in the environment goes before the file, and the file before the default. The file is the one
`LAKEPACT_CONFIG` names, else `lakepact.toml` in the working directory if there is one. The kernel's bounds appear here
under their own names; their defaults and meanings live in `kernel/settings.py` alone. `docs/operations.md` has the
table, and a test keeps the two in step.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import os
import textwrap
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import urlsplit

from pydantic import Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, TomlConfigSettingsSource

from lakepact.errors import InvalidSetting
from lakepact.kernel.settings import KernelSettings

PREFIX: Final = "LAKEPACT_"
CONFIG_VARIABLE: Final = "LAKEPACT_CONFIG"
CONFIG_FILE: Final = "lakepact.toml"
HIDDEN: Final = "***"

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


class Settings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="forbid", frozen=True)

    store: str = Field(
        default="sqlite:///lakepact-data/lakepact.db",
        description="The URL of the store that holds cells and records.",
    )
    store_options: dict[str, str] = Field(
        default_factory=dict,
        description="What the store needs beside its URL, such as `endpoint` and `region`. As JSON in the environment.",
    )

    lease_s: float = _bound("lease_s")
    open_ttl_s: float = _bound("open_ttl_s")
    max_ttl_s: float = _bound("max_ttl_s")
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

    @field_validator("store")
    @classmethod
    def _is_url(cls, value: str) -> str:
        if not urlsplit(value).scheme:
            raise ValueError("a store is a URL such as sqlite:///lakepact-data/lakepact.db or s3://bucket/prefix")
        return value

    @classmethod
    def load(cls, **given: Any) -> Self:
        """The settings of this process. `given` goes before everything; a value of None means "not given"."""
        try:
            return cls(**{name: value for name, value in given.items() if value is not None})
        except ValidationError as error:
            raise InvalidSetting(_explained(error)) from None
        except ValueError as error:
            source = f"{_config_path()} or the environment" if _config_path() else "the environment"
            raise InvalidSetting(f"{source} cannot be read: {error}. Correct it and start again") from None

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls, _config_path())

    def kernel(self) -> KernelSettings:
        """The part of the settings that the kernel knows."""
        return KernelSettings(**{field.name: getattr(self, field.name) for field in dataclasses.fields(KernelSettings)})

    def shown(self) -> dict[str, Any]:
        """Every setting by name, fit for other people's eyes: no password, no key."""
        values = self.model_dump()
        values["store"] = without_password(self.store)
        values["store_options"] = {
            name: HIDDEN if any(word in name.lower() for word in _SECRET_WORDS) else value
            for name, value in self.store_options.items()
        }
        return values


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


def _config_path() -> Path | None:
    named = os.environ.get(CONFIG_VARIABLE)
    path = Path(named or CONFIG_FILE)
    if path.is_file():
        return path
    if named:
        raise InvalidSetting(f"there is no settings file {path}; correct {CONFIG_VARIABLE}")
    return None


def _explained(error: ValidationError) -> str:
    path = _config_path()
    lines = []
    for problem in error.errors():
        name = ".".join(map(str, problem["loc"])) or "settings"
        if problem["type"] == "extra_forbidden":
            lines.append(f"{name}: there is no such setting" + (f" (in {path})" if path else ""))
        else:
            value = HIDDEN if any(word in name.lower() for word in _SECRET_WORDS) else repr(problem["input"])
            lines.append(f"{name} = {value}: {problem['msg']} (set {PREFIX}{name.upper()} or the file)")
    return "; ".join(lines) + ". `lakepact config show` lists every setting"
