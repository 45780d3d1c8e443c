"""The commit protocol, checked by TLC: it keeps its promises, and each sabotage is seen to break one.

`pytest -s tests/spec` prints how many states were looked at. The large worlds run with LAKEPACT_LONG=1.
`python -m tests.spec` prints the tables of `specs/README.md` anew.
"""

from __future__ import annotations

import re

import pytest

from tests.spec.cases import LARGE, SMALL, VARIANTS, WITNESSES, Variant
from tests.spec.tables import sound_row, variant_row, witness_row
from tests.spec.tlc import PROMISES, SPECS, CannotRun, Verdict, World, check, configuration, jar, java

SPECIFICATION = (SPECS / "commit.tla").read_text()
README = (SPECS / "README.md").read_text()


def test_java_and_tlc_are_here() -> None:
    assert java()
    assert jar().name == "tla2tools.jar"


@pytest.mark.parametrize("world", SMALL, ids=str)
def test_every_promise_holds_in_the_small_world(world: World) -> None:
    verdict = check(world)
    _holds(verdict, world)
    _is_in_readme(sound_row(world, verdict))


@pytest.mark.long
@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("world", LARGE, ids=str)
def test_every_promise_holds_in_the_large_world(world: World) -> None:
    _holds(check(world, heap="3g", timeout_s=4 * 3600 - 60), world)


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_the_sabotage_is_refuted(variant: Variant) -> None:
    verdict = check(variant.world, variant.sabotage, (variant.refutes,))
    print(f"\n{variant.sabotage}: {verdict.refuted} after {verdict.distinct:,} distinct states")
    assert verdict.refuted == variant.refutes, f"it went unnoticed in this world: {variant.world}"
    assert verdict.trace_length > 1
    _is_in_readme(variant_row(variant, verdict))


@pytest.mark.parametrize(("claim", "world"), WITNESSES, ids=lambda value: str(value))
def test_the_world_is_rich_enough(claim: str, world: World) -> None:
    verdict = check(world, promises=(claim,))
    assert verdict.refuted == claim, f"no run of this world gets there: {world}"
    _is_in_readme(witness_row(claim, world, verdict))


def test_every_sabotage_of_the_specification_is_tested() -> None:
    listed = re.search(r"^Sabotages == \{(.*?)\}", SPECIFICATION, re.DOTALL | re.MULTILINE)
    assert listed is not None
    names = set(re.findall(r'"([a-z-]+)"', listed.group(1)))
    assert names == {"none"} | {variant.sabotage for variant in VARIANTS}


def test_every_switch_breaks_something() -> None:
    used = set(re.findall(r'Sabotage (?:=|#) "([a-z-]+)"', SPECIFICATION))
    for group in re.findall(r"Sabotage \\in \{(.*?)\}", SPECIFICATION):
        used.update(re.findall(r'"([a-z-]+)"', group))
    assert used == {variant.sabotage for variant in VARIANTS}


def test_every_promise_is_broken_by_some_sabotage() -> None:
    assert {variant.refutes for variant in VARIANTS} == set(PROMISES)


def test_every_witness_and_every_world_is_used() -> None:
    claims = re.findall(r"^(Never_\w+) ==", SPECIFICATION, re.MULTILINE)
    assert set(claims) == {claim for claim, _ in WITNESSES}
    worlds = set(re.findall(r'World = "(\w+)"', SPECIFICATION))
    assert worlds == {world.name for world in (*SMALL, *LARGE)}


def test_the_configuration_for_use_by_hand_is_the_first_small_world() -> None:
    by_hand = (SPECS / "commit.cfg").read_text().splitlines()
    kept = [line for line in by_hand if line and not line.startswith("\\*")]
    assert kept == configuration(SMALL[0], "none", PROMISES).splitlines()


def test_a_specification_that_tlc_cannot_read_proves_nothing() -> None:
    with pytest.raises(CannotRun):
        check(World("nowhere"))


def _holds(verdict: Verdict, world: World) -> None:
    print(f"\n{world}: {verdict.distinct:,} distinct states, {verdict.generated:,} generated")
    assert verdict.refuted is None, verdict.output
    assert "No error has been found" in verdict.output


def _is_in_readme(row: str) -> None:
    """The figures there are those that were really seen."""
    assert row in README, f"specs/README.md is stale; it should say: {row}"
