"""Make the Python code of the gRPC interface from `proto/`.

    python tools/generate_proto.py [--check]

The code goes to `src/lakepact/v1`, where the package of the proto file says. It is committed, so that neither users nor
the build need a compiler; a test runs this with `--check`, which writes nothing and fails if the code is out of date.
"""

import sys
import tempfile
from importlib.resources import files
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent
PROTO = ROOT / "proto"
TARGET = ROOT / "src"


def main(check: bool) -> int:
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder))
        made = {path.relative_to(folder): path.read_text() for path in sorted(Path(folder).rglob("*.py*"))}
    outdated = [path for path, text in made.items() if not is_at(TARGET / path, text)]
    if check:
        for path in outdated:
            print(f"src/{path} is not what proto/ says; run `make proto`", file=sys.stderr)
        return 1 if outdated else 0
    for path in outdated:
        (TARGET / path).parent.mkdir(parents=True, exist_ok=True)
        (TARGET / path).write_text(made[path])
        print(f"src/{path}")
    return 0


def generate(folder: Path) -> None:
    command = [
        "protoc",
        f"--proto_path={PROTO}",
        f"--proto_path={files('grpc_tools') / '_proto'}",
        *(f"--{kind}_out={folder}" for kind in ("python", "pyi", "grpc_python")),
        *(str(path) for path in sorted(PROTO.rglob("*.proto"))),
    ]
    if protoc.main(command) != 0:
        raise SystemExit("the compiler refused proto/ (see above)")


def is_at(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text() == text


if __name__ == "__main__":
    raise SystemExit(main(check="--check" in sys.argv[1:]))
