"""DuckDB with its iceberg extension, from wheels: nothing is downloaded when a test runs.

DuckDB checks the signature of every extension it loads against its own key, and is not told to do otherwise here. So
it does not matter who has put the files into wheels. If one of them cannot be had, `connect` raises and says what is
missing: a test that needs it fails, and is not skipped.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Final

import duckdb

EXTENSIONS: Final = ("avro", "httpfs", "iceberg")
"""In the order in which they need each other."""


def extension_path(name: str) -> Path:
    """The file of an extension, for exactly this version of DuckDB."""
    package = f"duckdb_extension_{name}"
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise RuntimeError(f"DuckDB's extension {name} is not here: pip install {package}=={duckdb.__version__}")
    path = Path(spec.origin).parent / "extensions" / f"v{duckdb.__version__}" / f"{name}.duckdb_extension"
    if not path.is_file():
        raise RuntimeError(f"{package} has no {path.name} for DuckDB {duckdb.__version__}: pin both alike")
    return path


def connect(url: str, warehouse: str = "main", name: str = "lake") -> duckdb.DuckDBPyConnection:
    """A DuckDB of its own, with the catalog at this URL attached under this name."""
    connection = duckdb.connect(config={"autoinstall_known_extensions": "false"})
    for extension in EXTENSIONS:
        connection.execute(f"LOAD '{extension_path(extension)}'")
    connection.execute(f"ATTACH '{warehouse}' AS {name} (TYPE iceberg, ENDPOINT '{url}', AUTHORIZATION_TYPE 'none')")
    return connection
