"""What TLC is asked: worlds that must hold, sabotages that must be refuted, witnesses that must be met.

A sabotage names the promise that breaks, and only that one is checked: so each promise is seen to have teeth
of its own, not to hide behind another that breaks first.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.spec.tlc import DEADLOCK, World


@dataclass(frozen=True, slots=True)
class Variant:
    """A rule broken on purpose, and the promise that TLC must refute."""

    sabotage: str
    refutes: str
    world: World

    def __str__(self) -> str:
        return f"{self.sabotage} breaks {self.refutes}"


SMALL = (
    World("takeover", late=1, crashes=1),
    World("stubborn", epochs=2),
    World("skew", epochs=2, late=1, crashes=1),
    World("pair", reader="cut", epochs=2),
    World("order", reader="cut", epochs=2),
    World("order", reader="single", epochs=2),
    World("apart", reader="cut", onlooker=True),
    World("prepared", reader="cut", epochs=2),
    World("prepared", late=1, crashes=1),
    World("handover"),
)

LARGE = (
    World("takeover", epochs=2, late=1, crashes=1),
    World("takeover", reader="cut", epochs=2),
    World("stubborn", epochs=3, late=1, crashes=1),
    World("pair", reader="cut", epochs=2, late=1),
    World("skew", reader="cut", epochs=2, late=1),
    World("order", reader="cut", onlooker=True, epochs=2, late=1),
    World("order", reader="single", epochs=2, late=2, crashes=1),
    World("handover", reader="cut", late=1),
    World("three"),
)

_PAIR = World("pair")
_READ_PAIR = World("pair", reader="cut")
_READ_APART = World("apart", reader="cut", onlooker=True)
_LATE_PAIR = World("pair", epochs=2, late=1)
_TAKEOVER = World("takeover")

VARIANTS = (
    # Outcomes that are unknown.
    Variant("unknown-lock-held", "P2_NoLostUpdate", _LATE_PAIR),
    Variant("unknown-lock-refused", "P9_HonestAnswers", _LATE_PAIR),
    Variant("unknown-commit-refused", "P9_HonestAnswers", _LATE_PAIR),
    Variant("read-back-by-owner-only", "P2_NoLostUpdate", _LATE_PAIR),
    # Fencing, ownership and epochs.
    Variant("clear-without-fencing", "P2_NoLostUpdate", _PAIR),
    Variant("record-read-before-cell", "P2_NoLostUpdate", _TAKEOVER),
    Variant("zombie-adopts", "P2_NoLostUpdate", _TAKEOVER),
    Variant("commit-from-preparing", "P2_NoLostUpdate", _PAIR),
    Variant("old-epoch-counts", "P2_NoLostUpdate", _TAKEOVER),
    Variant("release-before-swap", "P2_NoLostUpdate", _LATE_PAIR),
    Variant("touched-forgotten", "P7_FinalizedIsClean", _TAKEOVER),
    Variant("lease-never-ends", DEADLOCK, World("pair", crashes=1)),
    # Reading and validating.
    Variant("cut-compares-cells", "P1_AtomicVisibility", _READ_PAIR),
    Variant("cut-reads-records-once", "P4_StrictSerializability", _READ_APART),
    Variant("cut-takes-error-as-old", "P1_AtomicVisibility", _READ_PAIR),
    Variant("finalized-means-stale", "P4_StrictSerializability", World("apart", reader="single")),
    Variant("validation-ignores-locks", "P4_StrictSerializability", World("skew")),
    Variant("validation-before-locks", "P4_StrictSerializability", World("skew")),
    Variant("reader-does-not-wait", "P4_StrictSerializability", World("order", reader="cut")),
    Variant("reads-locked-in-name", "P4_StrictSerializability", World("prepared", reader="cut")),
    # Answers, applying, the same key again, collection.
    Variant("conflict-without-owning", "P9_HonestAnswers", _TAKEOVER),
    Variant("conflict-from-stale-cache", "P9_HonestAnswers", _PAIR),
    Variant("lock-drops-committed-value", "P2_NoLostUpdate", _PAIR),
    Variant("apply-without-lock", "P2_NoLostUpdate", _PAIR),
    Variant("final-state-taken-over", "P3_ExactlyOnce", _TAKEOVER),
    Variant("final-state-taken-over", "P9_FinalStatesStay", _TAKEOVER),
    Variant("record-deleted-early", "R2_LocksHaveRecords", World("takeover", late=1)),
    Variant("id-created-again", "P3_ExactlyOnce", _TAKEOVER),
)

WITNESSES = (
    ("Never_TakeOverCommits", _TAKEOVER),
    ("Never_CommitsAfterCollision", World("order", epochs=2)),
    ("Never_CommitsOutOfOrder", World("order")),
    ("Never_LocksOverCommitted", _PAIR),
    ("Never_LocksOverDead", _PAIR),
    ("Never_LateCommitLands", World("apart", late=1)),
    ("Never_LateLockStrays", World("pair", late=1)),
    ("Never_PreparedCommittedByOthers", World("prepared")),
    ("Never_PreparedEndedByOthers", World("prepared")),
    ("Never_CutWithUndecidedLock", _READ_PAIR),
)
"""Runs that must exist, each named by the claim that they do not."""
