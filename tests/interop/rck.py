"""Iceberg's REST Compatibility Kit against a server: both of its classes, all of their tests, and what came of them."""

from __future__ import annotations

import os
import subprocess
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.support import jars

_SOURCE: Final = Path(__file__).parent / "java" / "Kit.java"
_CLASSES: Final = ("TableTests", "org.apache.iceberg.rest.RESTCompatibilityKitViewCatalogTests")

# The kit's client reaches local files through Hadoop, which comes with pyspark.
_FROM_PYSPARK: Final = ("hadoop-client-api", "hadoop-client-runtime", "jcl-over-slf4j")

# What a server may leave out, and this one does not.
_CLAIMS: Final = {
    "rck.local": "false",
    "rck.requires-namespace-create": "true",
    "rck.supports-serverside-retry": "true",
    "rck.supports-names-with-dot": "true",
    "rck.overrides-requested-location": "false",
    "rck.purge-test-namespaces": "true",
}


@dataclass(frozen=True, slots=True)
class Report:
    """The tests of one run, by class and name."""

    passed: tuple[str, ...]
    failed: Mapping[str, str]
    """With what they said."""
    skipped: Mapping[str, str]
    """With why."""
    took_s: float
    output: str = field(repr=False)

    def __str__(self) -> str:
        told = [f"{len(self.passed)} passed, {len(self.failed)} failed, {len(self.skipped)} skipped"]
        told[0] += f" in {self.took_s:.0f} s"
        told += [f"failed {name}\n    {why}" for name, why in self.failed.items()]
        return "\n".join(told)


def run_kit(
    uri: str,
    folder: Path,
    *,
    warehouse: str,
    locations: str,
    only: str = "",
    timeout_s: float = 600,
) -> Report:
    """Run the kit against the server at `uri`, which must have none of the namespaces ns, ns1, ns2, newdb, other_ns.

    `warehouse` is the name that clients send. `locations` is a `file:` URL inside it, below which the kit may ask for
    tables; its temporary files lie there too, and server and kit must both reach them. `only` is a pattern that
    methods must match. The report's files go into `folder`.
    """
    temporary = Path(locations.removeprefix("file:").replace("//", "/"), "temporary")
    temporary.mkdir(parents=True, exist_ok=True)
    properties = {
        **_CLAIMS,
        "uri": uri,
        "warehouse": warehouse,
        "java.io.tmpdir": str(temporary),
        "lakepact.requested-locations": locations,
    }
    path = jars.classpath(jars.resolve(jars.COMPATIBILITY_KIT) + jars.pyspark_jars(*_FROM_PYSPARK))
    classes = jars.compile_java(_SOURCE, path)
    command = [
        # Short-lived: the cheap compiler and collector start fastest.
        *(jars.java(), "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx512m"),
        *(f"-D{name}={value}" for name, value in properties.items()),
        *("-cp", f"{classes}{os.pathsep}{path}", _SOURCE.stem, "execute"),
        *(f"--select-class={name}" for name in _CLASSES),
        *(("--include-methodname", only) if only else ()),
        *("--include-classname=.*", "--details=none", "--disable-banner", f"--reports-dir={folder}"),
    ]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout_s)
    reported = folder / "TEST-junit-jupiter.xml"
    if not reported.exists():
        raise RuntimeError(f"the kit did not run:\n{done.stdout[-8000:]}")
    return _read(reported, done.stdout)


def _read(reported: Path, output: str) -> Report:
    suite = ElementTree.parse(reported).getroot()
    passed: list[str] = []
    failed: dict[str, str] = {}
    skipped: dict[str, str] = {}
    for case in suite.iter("testcase"):
        name = f"{case.get('classname', '').rpartition('.')[2]}.{case.get('name')}"
        broken = next((part for kind in ("failure", "error") for part in case.findall(kind)), None)
        left_out = case.find("skipped")
        if broken is not None:
            failed[name] = (broken.get("message") or broken.text or "").partition("\n\tat ")[0].strip()[:1000]
        elif left_out is not None:
            skipped[name] = (left_out.text or "").strip().partition("\n")[0][:200]
        else:
            passed.append(name)
    return Report(tuple(passed), failed, skipped, float(suite.get("time", "0")), output)
