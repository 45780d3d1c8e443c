"""Where settings come from: the command line, then the environment, then a TOML file, then the default.

The file is read here, so that whatever is wrong with it is said with its name and line. What the settings are, and what
they mean, is in `settings.py`.
"""

from __future__ import annotations

import os
import re
import stat
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from lakepact.errors import InvalidSetting
from lakepact.this_user import this_user

PREFIX: Final = "LAKEPACT_"
CONFIG_VARIABLE: Final = "LAKEPACT_CONFIG"
CONFIG_FILE: Final = "lakepact.toml"

OPTION: Final = "option"
ENVIRONMENT: Final = "environment"
FILE: Final = "file"
DEFAULT: Final = "default"

_AT_LINE: Final = re.compile(r"(?P<problem>.*) \(at (?:line (?P<line>\d+), column \d+|end of document)\)", re.DOTALL)
_BARE_KEY: Final = re.compile(r"\s*([A-Za-z0-9_.-]+)\s*=")


def config_path() -> Path | None:
    """The settings file, or None if there is none. Raises `InvalidSetting` if one is meant and is no file."""
    named = os.environ.get(CONFIG_VARIABLE)
    path = Path(named or CONFIG_FILE)
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        if named:
            raise InvalidSetting(f"there is no settings file {path}; correct {CONFIG_VARIABLE}") from None
        return None
    except PermissionError:
        # It may be there: to go on without it would be to run with other settings than those somebody wrote.
        raise InvalidSetting(
            f"{this_user()} may not look for the settings file {path.absolute()}. Give this user the right to enter "
            f"its folder, or name another file with {CONFIG_VARIABLE}"
        ) from None
    except OSError as error:
        raise InvalidSetting(f"the settings file {path} cannot be read: {error.strerror}") from None
    if not stat.S_ISREG(mode):
        kind = "a folder" if stat.S_ISDIR(mode) else "no plain file"
        do = f"correct {CONFIG_VARIABLE}" if named else f"rename it, or name a file with {CONFIG_VARIABLE}"
        raise InvalidSetting(f"{path.absolute()} is {kind}, and the settings are to be read from it; {do}")
    return path


def read_file() -> dict[str, Any]:
    """What the settings file says; nothing if there is none."""
    path = config_path()
    if path is None:
        return {}
    try:
        text = path.read_bytes().decode()
    except PermissionError:
        raise InvalidSetting(
            f"{this_user()} may not read the settings file {path}. Give this user the right to read it, or run this "
            f"as the user whose file it is"
        ) from None
    except OSError as error:
        raise InvalidSetting(f"the settings file {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise InvalidSetting(f"{path}, line {line}: it is not text in UTF-8. Save the file as UTF-8") from None
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidSetting(_not_toml(path, text, str(error))) from None


def _not_toml(path: Path, text: str, said: str) -> str:
    """What the parser says of a file, with the key if it is given twice. No value: it may be a secret."""
    found = _AT_LINE.fullmatch(said)
    if found is None:
        return f"{path} is not TOML: {said}. Correct it"
    lines = text.rstrip().split("\n")
    number, problem = int(found["line"] or len(lines)), found["problem"]
    key = _BARE_KEY.match(lines[number - 1]) if number <= len(lines) else None
    if problem == "Cannot overwrite a value" and key is not None:
        return f"{path}, line {number}: {key[1]} is given a second time. Leave one of them out"
    if twice := re.fullmatch(r"Cannot declare \((.*)\) twice", problem):
        table = ".".join(re.findall(r"'([^']*)'", twice[1]))
        return f"{path}, line {number}: [{table}] begins a second time. Put all of it into one"
    if problem == "Invalid value" and key is not None:
        return f'{path}, line {number}: the value of {key[1]} is not TOML. A text is in quotes, as in {key[1]} = "text"'
    return f"{path}, line {number}, is not TOML: {problem}. Correct it"


def sources(names: Iterable[str], given: Iterable[str], file: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Where the value of each setting comes from, the strongest first. Tables of several sources become one."""
    options = frozenset(given)
    environment = {name.lower() for name in os.environ}
    in_file = {name.lower() for name in file}
    found: dict[str, tuple[str, ...]] = {}
    for name in names:
        every = {
            OPTION: name in options,
            ENVIRONMENT: f"{PREFIX}{name}".lower() in environment,
            FILE: name in in_file,
        }
        found[name] = tuple(source for source, there in every.items() if there) or (DEFAULT,)
    return found
