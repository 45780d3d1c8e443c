"""Write `requirements.txt`: what a server needs, pinned by version and by the hashes of every file of each release.

    .venv/bin/python tools/hash_requirements.py

Versions are those of `constraints.txt`. Which packages are needed is read from the environment that `make setup` makes.
Hashes are those that the package index announces, for all platforms; pip is asked for them, so its own configuration
says where the index is. Use the file with `pip install --require-hashes -r requirements.txt`.
"""

from __future__ import annotations

import re
import sys
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[1]
EXTRAS = ("postgres", "objects", "grpc", "oidc", "gcs-keys", "duckdb", "delta", "otel")
"""Those of a server. `spark` and `pyiceberg` are for programs that use the client."""

BUILD = ("hatchling", "packaging", "pathspec", "pluggy", "trove-classifiers")
"""What builds Lakepact itself from a checkout. It is not part of the environment, so it is listed here."""

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
SYSTEMS = (("linux", "Linux"), ("darwin", "Darwin"))
HEADER = f"""\
# What a server needs, with the hashes of every file of each release: pip install --require-hashes -r requirements.txt
# Extras: {", ".join(EXTRAS)}. Made by tools/hash_requirements.py from constraints.txt; do not edit.
"""


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    found = (line.partition("==") for line in lines if line and not line.startswith("#"))
    return {canonicalize_name(name): version for name, _, version in found}


def needed() -> list[str]:
    """Lakepact's requirements with these extras, and what they require, on any supported Python and system."""
    found: set[str] = set()
    ahead: list[tuple[str, frozenset[str]]] = [("lakepact", frozenset(EXTRAS)), *((one, frozenset()) for one in BUILD)]
    seen: set[tuple[str, frozenset[str]]] = set()
    while ahead:
        name, extras = ahead.pop()
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        if name != "lakepact":
            found.add(name)
        for text in _requires(name):
            requirement = Requirement(text)
            if _applies(requirement, extras):
                ahead.append((canonicalize_name(requirement.name), frozenset(requirement.extras)))
    return sorted(found)


def _requires(name: str) -> list[str]:
    try:
        return requires(name) or []
    except PackageNotFoundError:
        if name not in BUILD:
            raise
        return []


def _applies(requirement: Requirement, extras: frozenset[str]) -> bool:
    if requirement.marker is None:
        return True
    environments = (
        {"python_version": python, "python_full_version": f"{python}.0", "sys_platform": platform}
        | {"platform_system": system, "extra": extra}
        for python in PYTHONS
        for platform, system in SYSTEMS
        for extra in ("", *extras)
    )
    return any(requirement.marker.evaluate(one) for one in environments)


def index() -> Any:
    """pip's own way to the package index: its configuration, proxies and certificates."""
    from pip._internal.commands import create_command

    command: Any = create_command("download")
    options, _ = command.parse_args(["nothing"])
    session = command._build_session(options)
    return command._build_package_finder(options, session)._link_collector


def hashes(collector: Any, name: str, version: str) -> list[str]:
    """Of every file of this release."""
    from pip._internal.index.collector import parse_links
    from pip._internal.models.link import Link

    found: set[str] = set()
    for address in collector.search_scope.get_index_urls_locations(name):
        response = collector.fetch_response(Link(address))
        for link in () if response is None else parse_links(response):
            if link.hash_name == "sha256" and _is_of(link.filename, name, version):
                found.add(f"sha256:{link.hash}")
    return sorted(found)


def _is_of(filename: str, name: str, version: str) -> bool:
    try:
        project, release = (
            parse_wheel_filename(filename)[:2] if filename.endswith(".whl") else parse_sdist_filename(filename)
        )
    except (InvalidWheelFilename, InvalidSdistFilename):
        return False
    return project == canonicalize_name(name) and release == Version(version)


def main() -> int:
    pinned, collector, lines = pins(), index(), [HEADER]
    for name in needed():
        if name not in pinned:
            print(f"{name} is not in constraints.txt; run make setup and pin it first", file=sys.stderr)
            return 1
        announced = hashes(collector, name, pinned[name])
        if not announced:
            print(f"the index announces no file of {name} {pinned[name]} with a SHA-256", file=sys.stderr)
            return 1
        lines.append(" \\\n    ".join([f"{name}=={pinned[name]}", *(f"--hash={one}" for one in announced)]) + "\n")
    text = "".join(lines)
    assert not re.search(r"https?:", text), "an address does not belong into the file"
    (ROOT / "requirements.txt").write_text(text)
    print(f"requirements.txt: {len(lines) - 1} packages")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
