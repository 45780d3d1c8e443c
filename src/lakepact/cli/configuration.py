from __future__ import annotations

from lakepact.cli.options import Json, StoreUrl
from lakepact.cli.output import print_json, print_rows
from lakepact.settings import Settings


def show(store: StoreUrl = None, json: Json = False) -> None:
    """Show every setting, its value and its meaning. Secrets are hidden."""
    settings = Settings.load(store=store)
    values = settings.shown()
    if json:
        print_json(values)
        return
    fields = Settings.model_fields
    print_rows(
        ("setting", "value", "meaning"),
        [(name, _as_text(value), fields[name].description or "") for name, value in values.items()],
    )


def _as_text(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}={content}" for name, content in value.items()) or "-"
    return str(value)
