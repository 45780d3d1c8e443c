"""The jobs that keep receipts complete, packed and no longer than they are wanted, for the runner."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from lakepact.catalog import Catalog
from lakepact.kernel.ports import CellStore, Clock, Rng
from lakepact.upkeep.collection.receipts import Retention
from lakepact.upkeep.packing import Packer
from lakepact.upkeep.reconcile import Depth, Reconciler
from lakepact.upkeep.runner import Job
from lakepact.upkeep.scribe import Report
from lakepact.upkeep.steps import paced

_LOOK_EVERY_S: Final = 600.0
"""How often a process looks for days to pack and receipts to remove. Both change once a day."""


_GRACE_S: Final = 60.0
"""A receipt is written a moment after its commit. A pass in between shall not take it for a missing one."""


@dataclass(frozen=True, slots=True)
class ReceiptSettings:
    reconcile_interval_s: float
    reconcile_depth: int
    pack_after_s: float
    loose_receipt_days: int
    receipt_days: int


def receipt_jobs(
    catalogs: Mapping[str, Catalog],
    store: CellStore,
    clock: Clock,
    rng: Rng,
    settings: ReceiptSettings,
    *,
    on_reconciled: Callable[[Report], None],
    on_packed: Callable[[int], None],
    on_removed: Callable[[int], None],
) -> dict[str, Job]:
    reconciler = Reconciler(
        catalogs,
        store,
        clock,
        rng,
        Depth(
            versions=settings.reconcile_depth,
            receipt_days=settings.receipt_days,
            grace_s=min(_GRACE_S, settings.reconcile_interval_s),
        ),
        interval_s=settings.reconcile_interval_s,
        on_pass=on_reconciled,
    )
    packer = Packer(
        {name: catalog.parts.blobs for name, catalog in catalogs.items()},
        clock,
        after_s=settings.pack_after_s,
        on_packed=on_packed,
    )
    retention = Retention(
        catalogs,
        clock,
        receipt_days=settings.receipt_days,
        loose_days=settings.loose_receipt_days,
        on_removed=on_removed,
    )
    return {
        "reconcile": reconciler.work,
        "pack-receipts": paced(packer.pack_some, clock, _LOOK_EVERY_S),
        "remove-receipts": paced(retention.remove_some, clock, _LOOK_EVERY_S),
    }
