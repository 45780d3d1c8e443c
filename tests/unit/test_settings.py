"""Settings come from the environment, then a file, then the default; and the docs list every one."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from lakepact.errors import InvalidSetting
from lakepact.kernel.settings import KernelSettings
from lakepact.settings import Settings, without_password


@pytest.fixture(autouse=True)
def an_empty_world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in [*Settings.model_fields, "config"]:
        monkeypatch.delenv(f"LAKEPACT_{name.upper()}", raising=False)


def documented(root: Path) -> dict[str, tuple[str, str]]:
    """Setting -> (default, meaning), from the table in the docs."""
    text = (root / "docs" / "operations.md").read_text()
    section = text.split("## Settings", 1)[1].split("\n## ", 1)[0]
    rows = re.findall(r"^\| `([a-z_]+)` \| (.+?) \| (.+?) \|$", section, re.MULTILINE)
    return {name: (default.strip("`"), meaning) for name, default, meaning in rows}


def test_the_docs_list_exactly_the_settings_there_are_with_their_defaults_and_meanings(root: Path) -> None:
    expected = {}
    for name, field in Settings.model_fields.items():
        default = field.get_default(call_default_factory=True)
        shown = "none" if default == {} else f"{default:,}" if isinstance(default, int) else _number(default)
        expected[name] = (shown, field.description)
    assert documented(root) == expected


def _number(value: object) -> str:
    return f"{value:,g}" if isinstance(value, float) else str(value)


def test_every_bound_of_the_kernel_is_a_setting_with_the_same_type_and_default() -> None:
    for field in dataclasses.fields(KernelSettings):
        assert Settings.model_fields[field.name].default == field.default
        assert Settings.model_fields[field.name].annotation is type(field.default)


def test_without_anything_set_the_kernel_has_its_defaults() -> None:
    assert Settings.load().kernel() == KernelSettings()


def test_an_argument_goes_before_the_environment_and_that_before_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lakepact.toml").write_text('store = "file:///a"\nlease_s = 3\nattempts = 4\n')
    monkeypatch.setenv("LAKEPACT_LEASE_S", "5")
    monkeypatch.setenv("LAKEPACT_ATTEMPTS", "6")
    settings = Settings.load(attempts=7)
    assert (settings.store, settings.lease_s, settings.attempts) == ("file:///a", 5.0, 7)
    assert settings.kernel().attempts == 7


def test_the_file_can_be_anywhere_if_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "other.toml").write_text('[store_options]\nregion = "eu-central-1"\n')
    monkeypatch.setenv("LAKEPACT_CONFIG", str(tmp_path / "other.toml"))
    assert Settings.load().store_options == {"region": "eu-central-1"}


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("LEASE_S", "0", "lease_s = '0'.*greater than 0.*LAKEPACT_LEASE_S"),
        ("LEASE_S", "inf", "lease_s"),
        ("RESENDS", "-1", "resends"),
        ("ATTEMPTS", "many", "attempts = 'many'"),
        ("STORE", "lakepact.db", "sqlite:///"),
        ("STORE_OPTIONS", "{", "store_options"),
        ("CONFIG", "nowhere.toml", "no settings file nowhere.toml"),
    ],
)
def test_a_wrong_setting_is_refused_by_name(
    name: str, value: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"LAKEPACT_{name}", value)
    with pytest.raises(InvalidSetting, match=message):
        Settings.load()


@pytest.mark.parametrize(("content", "message"), [("leese_s = 3", "leese_s: there is no such"), ("lease_s =", "toml")])
def test_a_wrong_file_is_refused_by_name(content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "lakepact.toml").write_text(content)
    with pytest.raises(InvalidSetting, match=message):
        Settings.load()


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("sqlite:///a/b.db", "sqlite:///a/b.db"),
        ("memory://", "memory://"),
        ("postgresql://me:secret@host:5432/db?x=1", "postgresql://me:***@host:5432/db?x=1"),
        ("postgresql://host/db?user=me&password=secret", "postgresql://host/db?***"),
    ],
)
def test_a_url_is_shown_without_its_password(url: str, shown: str) -> None:
    assert without_password(url) == shown


def test_secrets_are_not_shown() -> None:
    options = {"region": "eu", "aws_secret_access_key": "hush", "account_key": "hush"}
    shown = Settings.load(store="postgresql://me:hush@host/db", store_options=options).shown()
    assert "hush" not in str(shown)
    assert shown["store_options"]["region"] == "eu"
