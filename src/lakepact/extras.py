"""How to get what an optional part of Lakepact needs. Nothing is on a public registry yet, and a name there would be
somebody else's: so an extra comes from where Lakepact itself came from."""

from __future__ import annotations

from importlib.util import find_spec


def how_to_install(*extras: str) -> str:
    names = ",".join(extras)
    checkout, wheel = f"pip install -c constraints.txt '.[{names}]'", f"pip install 'WHEEL[{names}]'"
    return f"{checkout} in the checkout, or {wheel} with its wheel"


def require(module: str, extra: str, needed_by: str) -> None:
    """Raise an `ImportError` that says how to install `module`, unless it is installed. Does not import it."""
    if find_spec(module) is None:
        raise ImportError(f"{needed_by} needs {module}, which is not installed: {how_to_install(extra)}", name=module)
