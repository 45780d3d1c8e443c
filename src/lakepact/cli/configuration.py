from __future__ import annotations

import re
from typing import Final

from lakepact.cli.options import Json, StoreUrl
from lakepact.cli.output import print_json, print_rows
from lakepact.settings import Settings

_LINK: Final = re.compile(r"\[([^]]*)\]\(([^)]*)\)")


def show(store: StoreUrl = None, json: Json = False) -> None:
    """Show every setting, its value, where that comes from, and its meaning. Secrets are hidden."""
    settings = Settings.load(store=store)
    values, sources = settings.shown(), settings.sources(store=store)
    if json:
        print_json({**values, "sources": sources})
        return
    fields = Settings.model_fields
    print_rows(
        ("setting", "value", "from", "meaning"),
        [
            (name, _as_text(value), sources[name], _LINK.sub(r"docs/\2", fields[name].description or ""))
            for name, value in values.items()
        ],
    )


def _as_text(value: object) -> str:
    """As the docs write it, and as the file takes it, but for quotes."""
    if value in (None, "", {}, []):
        return "none"
    match value:
        case bool():
            return str(value).lower()
        case dict():
            return ", ".join(f"{name}={_inside(content)}" for name, content in value.items())
        case list():
            return ", ".join(map(_inside, value))
        case float():
            return f"{value:.15g}"
        case _:
            return str(value)


def _inside(value: object) -> str:
    text = _as_text(value)
    return f"{{{text}}}" if isinstance(value, dict) and value else text
