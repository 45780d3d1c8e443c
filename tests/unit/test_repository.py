"""The repository keeps its own rules: links lead somewhere, pins are complete, nothing names a machine."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement

TARGETS = ["help", "setup", "demo", "test", "verify", "check", "sim", "rck", "bench", "serve"]


def pages(root: Path) -> Iterator[Path]:
    yield from root.glob("*.md")
    yield from (root / "docs").rglob("*.md")


def anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_every_link_in_the_docs_leads_somewhere(root: Path) -> None:
    broken = []
    for page in pages(root):
        for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
            if target.startswith("http"):
                continue
            path, _, anchor = target.partition("#")
            linked = (page.parent / path).resolve() if path else page
            if not linked.exists() or (anchor and anchor not in anchors(linked)):
                broken.append(f"{page.relative_to(root)}: {target}")
    assert not broken


def test_every_decision_is_in_the_index_with_its_title(root: Path) -> None:
    folder = root / "docs" / "decisions"
    index = (folder / "README.md").read_text()
    decisions = sorted(path for path in folder.glob("[0-9]*.md") if not path.name.startswith("0000"))
    assert decisions
    for path in decisions:
        number, _, title = path.read_text().splitlines()[0].removeprefix("# ").partition(": ")
        assert path.name.startswith(number)
        assert f"[{number}]({path.name}) | {title} |" in index


def test_make_help_names_every_target_once(root: Path) -> None:
    shown = subprocess.run(["make", "-C", str(root), "help"], capture_output=True, text=True, check=True).stdout
    assert re.findall(r"^ +make (\w+) +\S", shown, re.MULTILINE) == TARGETS
    first = subprocess.run(["make", "-C", str(root)], capture_output=True, text=True, check=True).stdout
    assert first == shown


def test_continuous_integration_calls_make_test_and_nothing_else(root: Path) -> None:
    lines = (root / ".ci" / "run").read_text().splitlines()
    commands = [line for line in lines if line and not line.startswith(("#", "set "))]
    assert len(commands) == 1
    assert re.search(r"\bmake\b.* test$", commands[0])


SERVER_EXTRAS = ("", "postgres", "objects", "grpc", "oidc", "gcs-keys", "duckdb", "delta", "otel")


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(root: Path) -> dict[str, str]:
    lines = (root / "constraints.txt").read_text().splitlines()
    return {normal(name): version for name, _, version in (line.partition("==") for line in lines if line[0] != "#")}


def test_every_installed_version_is_pinned(root: Path) -> None:
    pinned = pins(root)
    installed = {normal(found.metadata["Name"]): found.version for found in distributions()}
    ours = {
        name: version for name, version in installed.items() if name not in ("lakepact", "pip", "setuptools", "wheel")
    }
    assert {name: pinned.get(name) for name in ours} == ours


def test_the_constraints_are_names_and_versions_and_nothing_else(root: Path) -> None:
    lines = (root / "constraints.txt").read_text().splitlines()
    assert all(re.fullmatch(r"#.*|[A-Za-z0-9._-]+==[A-Za-z0-9.]+", line) for line in lines)


def test_the_pins_of_the_project_and_of_the_environment_agree(root: Path) -> None:
    pinned = pins(root)
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    for requirement in wanted:
        found = re.match(r"([A-Za-z0-9._-]+)(?:\[[^]]*\])?==([^;\s]+)", requirement)
        if found:
            assert pinned[normal(found[1])] == found[2], requirement


def hashed(root: Path) -> dict[str, tuple[str, list[str]]]:
    """Version and hashes of every package of `requirements.txt`."""
    text = (root / "requirements.txt").read_text().replace("\\\n", " ")
    found: dict[str, tuple[str, list[str]]] = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            requirement, *hashes = line.split()
            name, _, version = requirement.partition("==")
            found[normal(name)] = version, hashes
    return found


def test_every_hashed_requirement_has_the_pinned_version_and_hashes(root: Path) -> None:
    pinned, found = pins(root), hashed(root)
    assert found
    for name, (version, hashes) in found.items():
        assert pinned[name] == version, f"{name}: run tools/hash_requirements.py"
        assert hashes and all(re.fullmatch("--hash=sha256:[0-9a-f]{64}", one) for one in hashes), name


def test_hashed_requirements_hold_all_that_a_server_needs(root: Path) -> None:
    """What is installed here and required by Lakepact with the extras of a server."""
    found = hashed(root)
    ahead, seen = [("lakepact", extra) for extra in SERVER_EXTRAS], set()
    while ahead:
        name, extra = ahead.pop()
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        assert name == "lakepact" or name in found, f"{name}: run tools/hash_requirements.py"
        for text in requires(name) or ():
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
                ahead += [(normal(requirement.name), one) for one in requirement.extras or {""}]


def test_nothing_names_a_machine_or_a_registry(root: Path) -> None:
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    files = subprocess.run(listed, cwd=root, capture_output=True, text=True)
    if files.returncode:
        pytest.skip("not a git work tree")
    suspicious = re.compile("/(work|home|root|Users)" + "/|index" + "-url|(pypi|npm)[a-z.]*[.](org|com|net|io)/")
    found = []
    for name in files.stdout.splitlines():
        path = root / name
        if path.is_file() and path.suffix in {".py", ".md", ".toml", ".txt", ".cfg", ".tla", ".json", ".sh", ""}:
            for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
                if suspicious.search(line):
                    found.append(f"{name}:{number}: {line.strip()[:100]}")
    assert not found


def test_sources_that_are_not_installed_know_their_version(root: Path) -> None:
    import lakepact

    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    assert project["version"] == lakepact._SOURCE_VERSION


def test_a_zip_of_the_sources_can_be_imported_without_being_installed(root: Path, tmp_path: Path) -> None:
    archive = shutil.make_archive(str(tmp_path / "sources"), "zip", root / "src")
    # Without site-packages there is no metadata of any package.
    command = [
        sys.executable,
        "-S",
        "-c",
        f"import sys; sys.path.insert(0, {archive!r}); import lakepact; print(lakepact.__version__)",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.strip()
