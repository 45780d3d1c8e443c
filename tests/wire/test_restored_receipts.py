"""Revisions begin again after a restore; receipts do not collide with those of the store that was lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakepact.upkeep.reconcile import Depth, Reconciler
from tests.support.postgres import LazyPostgres
from tests.wire.test_backup import CLOCK, RNG, restored, saved, store_url
from tests.wire.test_receipts import receipts
from tests.wire.world import Wire, append, new_key


async def rename(wire: Wire, old: str, new: str) -> None:
    body = {
        "source": {"namespace": ["db"], "name": old},
        "destination": {"namespace": ["db"], "name": new},
    }
    answer = await wire.post("/tables/rename", body, new_key())
    assert answer.status == 204, answer


async def reconciled(wire: Wire, *, full: bool) -> None:
    assert wire.service is not None
    catalogs = wire.service.catalogs
    store = next(iter(catalogs.values())).parts.store
    await Reconciler(catalogs, store, CLOCK, RNG, Depth(full=full)).run()


def receipts_in(wire: Wire) -> list[tuple[str, str]]:
    return [(one["change"], one["name"]) for one in receipts(wire) if one["kind"] != "namespace"]


@pytest.mark.parametrize("full", [False, True], ids=["changed", "full"])
@pytest.mark.parametrize("kind", ["sqlite", "postgres", "file"])
async def test_every_change_after_a_restore_has_its_receipt_and_none_appears_that_did_not_happen(
    kind: str, full: bool, tmp_path: Path, postgres: LazyPostgres
) -> None:
    async with store_url(kind, tmp_path, postgres) as old, store_url(kind, tmp_path, postgres) as new:
        async with Wire.opened(tmp_path, store=old) as wire:
            await wire.namespace("db")
            await wire.table("t")
            await rename(wire, "t", "a")
            await wire.table("u")
            assert (await wire.commit(append(1), name="u", key=new_key())).status == 200
        await saved(old, tmp_path / "backup.gz")
        # What happens after the backup is lost with the store; its receipts stay.
        async with Wire.opened(tmp_path, store=old) as wire:
            await rename(wire, "a", "lost")
            await rename(wire, "u", "lost2")
        before = receipts_in(wire)
        await restored(new, tmp_path / "backup.gz")
        async with Wire.opened(tmp_path, store=new) as wire:
            await reconciled(wire, full=full)
        assert receipts_in(wire) == before
        async with Wire.opened(tmp_path, store=new) as wire:
            await rename(wire, "u", "v")
            assert (await wire.delete("/namespaces/db/tables/a")).status == 204
            await reconciled(wire, full=full)
        assert receipts_in(wire) == [*before, ("rename", "v"), ("drop", "a")]
        documents = [one for one in receipts(wire) if one["kind"] != "namespace"]
        generations = [one["generation"] for one in documents]
        assert generations[: len(before)] == [0] * len(before)
        assert len(set(generations[len(before) :])) == 1 and generations[-1] > 0


async def test_two_restores_of_one_backup_have_two_generations_and_a_later_one_is_greater(
    tmp_path: Path, postgres: LazyPostgres
) -> None:
    generations: list[int] = []
    backup = tmp_path / "backup.gz"
    async with Wire.opened(tmp_path) as wire:
        await wire.namespace("db")
        await wire.table("t")
    await saved(wire.settings.store, backup)
    for number in range(3):
        async with store_url("sqlite", tmp_path, postgres) as url:
            await restored(url, backup)
            async with Wire.opened(tmp_path, store=url) as wire:
                assert wire.service is not None
                generations.append(wire.service.catalogs["main"].settings.generation)
            # The last one is made from a backup of a store that was itself restored.
            backup = tmp_path / f"backup-{number}.gz"
            await saved(url, backup)
    assert generations == sorted(set(generations)) and generations[0] > 0
