"""Settings come from the environment, then a file, then the default; and the docs list every one."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from lakepact.errors import InvalidSetting
from lakepact.kernel.settings import KernelSettings
from lakepact.settings import FOLLOWS, Place, Settings, without_password


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
        expected[name] = (FOLLOWS.get(name) or _as_text(default), field.description)
    assert documented(root) == expected


def _as_text(value: object) -> str:
    if value in ({}, "", None):
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    # A port is a name and not an amount.
    if isinstance(value, int) and value != 8181:
        return f"{value:,}"
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
        ("ATTEMPTS", "many", r"attempts = 'many': it should be a whole number \(from LAKEPACT_ATTEMPTS\)"),
        ("STORE", "lakepact.db", "sqlite:///"),
        ("STORE_OPTIONS", "{", "LAKEPACT_STORE_OPTIONS is not JSON"),
        ("WAREHOUSE", "lakehouse", "warehouse = 'lakehouse'.*s3://bucket/prefix"),
        ("WAREHOUSE", "postgresql://host/db", "warehouse"),
        ("WAREHOUSES", '{"Sales": {"url": "s3://a/b"}}', "'Sales' cannot be the name.*LAKEPACT_WAREHOUSES"),
        ("WAREHOUSES", '{"namespaces": {"url": "s3://a/b"}}', "'namespaces' cannot be the name"),
        (
            "WAREHOUSES",
            '{"sales": {"options": {"secret": "hush"}}}',
            "warehouses.sales.url is missing in LAKEPACT_WAREHOUSES",
        ),
        ("DEFAULT_WAREHOUSE", "config", "'config' cannot be the name"),
        ("DEFAULT_WAREHOUSE", "a" * 64, "cannot be the name"),
        ("BASE_PATH", "catalog", "begins with a slash"),
        ("BASE_PATH", "/a b", "base_path"),
        ("DATA", "", "data = ''"),
        ("PORT", "65536", "port"),
        ("LOG_LEVEL", "loud", "log_level"),
        ("MULTI_TABLE_TRANSACTIONS", "perhaps", "multi_table_transactions"),
        ("TLS_CERT", "cert.pem", "^tls_cert and tls_key go together"),
        ("CONFIG", "nowhere.toml", "no settings file nowhere.toml"),
        ("CONFIG", "/", "^/ is a folder.*correct LAKEPACT_CONFIG"),
        ("CONFIG", "/dev/null", "^/dev/null is no plain file"),
    ],
)
def test_a_wrong_setting_is_refused_by_name(
    name: str, value: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"LAKEPACT_{name}", value)
    with pytest.raises(InvalidSetting, match=message):
        Settings.load()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"leese_s = 3", r"leese_s: there is no such setting \(from lakepact.toml\), write lease_s"),
        (b"prot = 8181", "write port if"),
        (b"warehouse_option = 1", "write warehouse_options if"),
        (b"[warehouses.b]\nulr = 's3://b/c'", "warehouses.b.ulr: there is no such.*write warehouses.b.url"),
        (b"[warehouse_credentials]\nrole_anr = 'x'", "write warehouse_credentials.role_arn"),
        (b"port = 'x'", r"port = 'x': it should be a whole number \(from lakepact.toml\)"),
        (b"host = 7", "it should be a text, in quotes"),
        (b"ui = 'perhaps'", "it should be true or false"),
        (b"\nlease_s =", "^lakepact.toml, line 2: the value of lease_s"),
        (b"port = 1\nport = 2\n", "^lakepact.toml, line 2: port is given a second time"),
        (b"[store_options]\n[store_options]\n", r"^lakepact.toml, line 2: \[store_options\] begins a second time"),
        (b"port = 1\nhost = '\xff'", "^lakepact.toml, line 2: it is not text in UTF-8"),
        (b"port = 1\n[", "^lakepact.toml, line 2, is not TOML"),
        (b"port 1\n", "^lakepact.toml, line 1, is not TOML"),
    ],
)
def test_a_wrong_file_is_refused_by_name_and_line(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "lakepact.toml").write_bytes(content)
    with pytest.raises(InvalidSetting, match=message):
        Settings.load()


def test_a_wrong_value_is_said_with_where_it_was_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lakepact.toml").write_text("port = -1\n")
    with pytest.raises(InvalidSetting, match=r"port = -1: .*\(from lakepact.toml\)"):
        Settings.load()
    monkeypatch.setenv("LAKEPACT_PORT", "-2")
    with pytest.raises(InvalidSetting, match=r"port = '-2': .*\(from LAKEPACT_PORT\)"):
        Settings.load()
    with pytest.raises(InvalidSetting, match=r"port = -3: .*\(from the command line\)"):
        Settings.load(port=-3)


def test_a_secret_in_a_broken_file_is_not_repeated(tmp_path: Path) -> None:
    for content in ("auth_secret = hush", "auth_secret = 'hush'\nauth_secret = 'hush'"):
        (tmp_path / "lakepact.toml").write_text(content)
        with pytest.raises(InvalidSetting, match="auth_secret") as refused:
            Settings.load()
        assert "hush" not in str(refused.value)


@pytest.mark.parametrize(("step", "says"), [("read_bytes", "may not read"), ("stat", "may not look for")])
def test_a_file_of_somebody_else_is_refused_with_who_may_not_read_it(
    step: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(path: Path, **options: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    (tmp_path / "lakepact.toml").write_text("port = 1\n")
    # By hand: root may read every file, and tests often run as root.
    monkeypatch.setattr(Path, step, denied)
    with pytest.raises(InvalidSetting, match=f"^user .* {says} the settings file .*lakepact.toml"):
        Settings.load()


def test_a_folder_in_place_of_the_file_is_not_passed_over(tmp_path: Path) -> None:
    (tmp_path / "lakepact.toml").mkdir()
    with pytest.raises(InvalidSetting, match=r"lakepact\.toml is a folder"):
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


@pytest.mark.parametrize("name", ["public_url", "oidc_issuer", "oidc_jwks_url"])
def test_t_auth_9_addresses_that_everybody_may_know_have_no_password(name: str) -> None:
    for somebody in ("user:s3cret", "s3cret", ":s3cret"):
        with pytest.raises(InvalidSetting, match="before its host; leave them out") as refused:
            Settings.load(**{name: f"https://{somebody}@idp.example.com/keys"})
        assert name in str(refused.value) and "s3cret" not in str(refused.value)
    plain = "https://idp.example.com/tenant@home"
    assert Settings.load(**{name: plain}).shown()[name] == plain
    asked = Settings.load(**{name: "https://idp.example.com/keys?token=s3cret"})
    assert "s3cret" not in str(asked.shown())


def test_secrets_are_not_shown() -> None:
    options = {"region": "eu", "aws_secret_access_key": "hush", "account_key": "hush"}
    shown = Settings.load(store="postgresql://me:hush@host/db", store_options=options).shown()
    assert "hush" not in str(shown)
    assert shown["store_options"]["region"] == "eu"


# --- what follows from `data`, and the warehouses ---------------------------------------------------------------------


def test_the_store_and_the_default_warehouse_are_in_the_data_folder_unless_they_are_given(tmp_path: Path) -> None:
    settings = Settings.load()
    assert settings.store == "sqlite:///lakepact-data/lakepact.db"
    assert settings.warehouse == f"file://{tmp_path}/lakepact-data/warehouse"
    assert settings.uses_data

    elsewhere = Settings.load(data=f"{tmp_path}/a #1")
    assert elsewhere.store == f"sqlite:///{tmp_path}/a %231/lakepact.db"
    assert elsewhere.warehouse == f"file://{tmp_path}/a %231/warehouse"

    given = Settings.load(store="memory://", warehouse="s3://bucket/lake")
    assert (given.store, given.warehouse, given.uses_data) == ("memory://", "s3://bucket/lake", False)


def test_warehouses_have_names_and_the_default_one_is_first(tmp_path: Path) -> None:
    (tmp_path / "lakepact.toml").write_text(
        'warehouse = "file:///lake"\n[warehouses.sales]\nurl = "s3://sales/x"\noptions = { region = "eu" }\n'
    )
    assert list(Settings.load().places().items()) == [
        ("main", Place(url="file:///lake")),
        ("sales", Place(url="s3://sales/x", options={"region": "eu"})),
    ]


def test_the_default_warehouse_may_be_one_of_the_named_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKEPACT_WAREHOUSES", '{"sales": {"url": "s3://sales/x", "options": {"region": "eu"}}}')
    settings = Settings.load(default_warehouse="sales")
    assert settings.warehouse == "s3://sales/x"
    assert settings.places() == {"sales": Place(url="s3://sales/x", options={"region": "eu"})}
    with pytest.raises(InvalidSetting, match="sales is given twice"):
        Settings.load(default_warehouse="sales", warehouse="s3://other/x")


def test_settings_that_are_handed_on_stay_what_they_are() -> None:
    settings = Settings.load(
        data="elsewhere",
        warehouses={"main": {"url": "s3://sales/x", "options": {"region": "eu"}}, "b": {"url": "gs://b/c"}},
    )
    assert Settings.model_validate_json(settings.model_dump_json()) == settings


def test_secrets_of_warehouses_are_not_shown() -> None:
    options = {"region": "eu", "secret_access_key": "hush"}
    shown = Settings.load(warehouse_options=options, warehouses={"b": {"url": "s3://b/c", "options": options}}).shown()
    assert "hush" not in str(shown)
    assert shown["warehouses"]["b"]["options"]["region"] == "eu"


def test_a_base_path_ends_without_a_slash() -> None:
    assert Settings.load(base_path="/catalog/").base_path == "/catalog"
    assert Settings.load(base_path="/").base_path == ""


@pytest.mark.parametrize("name", ["AUHT", "STOR", "LOG_LEVL", "WAREHOSE"])
def test_a_variable_that_is_almost_a_setting_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"LAKEPACT_{name}", "x")
    with pytest.raises(InvalidSetting, match="did you mean LAKEPACT_"):
        Settings.load()


@pytest.mark.parametrize(
    "name", ["SERVICE_HOST", "PORT_8181_TCP", "TOKEN_FILE", "URI", "CLIENT_SECRET", "WAREHOUSE_PORT"]
)
def test_variables_of_others_are_none_of_our_business(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"LAKEPACT_{name}", "x")
    Settings.load()


@pytest.mark.parametrize(
    ("store", "first", "second", "says"),
    [
        ("memory://", {"url": "s3://lake/wh"}, {"url": "s3://lake/wh/sub", "account": "b"}, "other lies inside of"),
        ("memory://", {"url": "s3://lake/wh/sub"}, {"url": "s3://lake"}, "main lies inside of warehouse other"),
        ("memory://", {"url": "gs://lake/wh"}, {"url": "gs://lake/wh/"}, "at the same place"),
        ("memory://", {"url": "file:///a/b"}, {"url": "file:///a/x/../b/c"}, "other lies inside of"),
        (
            "memory://",
            {"url": "abfss://c@company.dfs.core.windows.net/wh"},
            {"url": "az://c/wh/x", "options": {"account_name": "company"}},
            "other lies inside of",
        ),
        (
            "s3://lake/wh/store",
            {"url": "s3://lake/wh"},
            {"url": "s3://other"},
            "the store lies inside of warehouse main",
        ),
        ("file:///a/b", {"url": "file:///c"}, {"url": "file:///a/b"}, "the store lies inside of warehouse other"),
        ("sqlite:////a/b/lake.db", {"url": "file:///a"}, {"url": "file:///c"}, "the store lies inside of"),
    ],
)
def test_t_tenant_5_places_that_lie_one_inside_the_other_are_refused(
    store: str, first: dict[str, Any], second: dict[str, Any], says: str
) -> None:
    with pytest.raises(InvalidSetting, match=says):
        Settings.load(store=store, default_warehouse="main", warehouses={"main": first, "other": second})


def test_places_beside_each_other_are_fine() -> None:
    at = {"endpoint": "http://one:9000"}, {"endpoint": "http://two:9000"}
    for store, first, second in (
        ("s3://lake/store", {"url": "s3://lake/wh"}, {"url": "s3://lake/wh2"}),
        ("memory://", {"url": "memory://"}, {"url": "memory://"}),
        ("postgresql://u@h/d", {"url": "s3://lake/wh", "options": at[0]}, {"url": "s3://lake/wh", "options": at[1]}),
        # A warehouse in the store's folder reaches none of its documents.
        ("file:///a", {"url": "file:///a/warehouse"}, {"url": "file:///a/other"}),
    ):
        Settings.load(store=store, default_warehouse="main", warehouses={"main": first, "other": second})
    Settings.load()
