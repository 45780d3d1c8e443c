"""A batch of seeds: every promise holds in each, and everything rare has happened somewhere."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import lakepact
from lakepact.kernel import access, cells, decide, overlay, protocol, reader, recovery, resolve, staging
from tests.sim.__main__ import main
from tests.sim.batch import run_batch, run_one
from tests.sim.broken import PromiseBroken
from tests.sim.scenarios import SCENARIOS, Run

ROOT = Path(__file__).parents[2]
SEEDS = int(os.environ.get("LAKEPACT_SIM_SEEDS") or 1_250)
SHARE = 1_250
"""The batch is split so that a parallel test run can share it out. In so many everything rare happens."""

JOBS = 1 if "PYTEST_XDIST_WORKER" in os.environ else 2


@pytest.mark.begins_first
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("first", range(0, SEEDS, SHARE))
def test_every_promise_holds_and_everything_rare_happens(first: int) -> None:
    share = min(SHARE, SEEDS - first)
    result = run_batch(first, share, jobs=JOBS)
    assert not result.failures, str(result.failures[0])
    assert result.seeds == share
    assert not result.never or share < SHARE, f"never happened: {result.never}"


def test_the_simulator_drives_the_production_modules() -> None:
    kernel = Path(lakepact.__file__).parent / "kernel"
    for module in (access, cells, decide, overlay, protocol, reader, recovery, resolve, staging):
        assert module.__file__ is not None
        assert Path(module.__file__).parent == kernel
    world = Run(0).world
    assert all(isinstance(process.cells, cells.DocumentCells) for process in world.processes)


@pytest.mark.parametrize("seed", range(len(SCENARIOS)))
def test_one_seed_is_one_history_whatever_the_hash_seed(seed: int) -> None:
    traces = {_trace_in_another_process(seed, hash_seed) for hash_seed in ("1", "2")}
    assert len(traces) == 1


def _trace_in_another_process(seed: int, hash_seed: str) -> str:
    script = (
        "from tests.sim.scenarios import Run\n"
        f"run = Run({seed})\n"
        "report = run.finish()\n"
        "print(report.steps, report.trace, run.world.random.random(), sorted(report.counters.items()))\n"
    )
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_a_failure_says_which_promise_which_seed_what_happened_and_how_to_replay_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(self: object) -> None:
        raise PromiseBroken("P5", "the dog ate it")

    monkeypatch.setattr("tests.sim.world.World.check", broken)
    assert main(["--seed", "7", "--quiet"]) == 1
    told = capsys.readouterr().out
    assert "P5 is broken in seed 7" in told
    assert "the dog ate it" in told
    assert "make sim SEED=7" in told
    assert len(run_one(7).failures[0].tail) == 40


def test_the_command_line_runs_seeds_and_tells_what_happened(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "4", "--start", "100", "--jobs", "1", "--scenario", "calm"]) == 0
    told = capsys.readouterr().out
    assert "4 seeds" in told
    assert "every promise held" in told
