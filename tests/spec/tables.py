"""The rows of the tables in `specs/README.md`, made from what TLC really said."""

from __future__ import annotations

from tests.spec.cases import Variant
from tests.spec.tlc import Verdict, World


def sound_row(world: World, verdict: Verdict) -> str:
    return f"| {world} | {verdict.distinct:,} | {verdict.generated:,} | {verdict.depth} |"


def variant_row(variant: Variant, verdict: Verdict) -> str:
    figures = f"{verdict.trace_length} | {verdict.distinct:,}"
    return f"| `{variant.sabotage}` | `{verdict.refuted}` | {variant.world.name} | {figures} |"


def witness_row(claim: str, world: World, verdict: Verdict) -> str:
    return f"| `{claim}` | {world.name} | {verdict.trace_length} |"
