"""Tables: created, committed to, registered, renamed, dropped. Plans in cells; the metadata itself is `iceberg`'s."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from lakepact.catalog.earlier import Earlier, assigned_uuid, leaves_traces, named
from lakepact.catalog.errors import AlreadyExists, BadRequest, CommitFailed, Refusal
from lakepact.catalog.files import MetadataFile, MetadataFiles, check_size, digest_of, parsed
from lakepact.catalog.governance import refuse_protected
from lakepact.catalog.ids import claim_id
from lakepact.catalog.keys import Keys
from lakepact.catalog.names import Names, missing
from lakepact.catalog.namespaces import Namespaces, id_of, prefixes
from lakepact.catalog.overlaps import Folders
from lakepact.catalog.pointers import DIGEST, Change, Kind, Pointer, identifier_json, shown
from lakepact.catalog.warehouse import Warehouse, check_properties
from lakepact.catalog.work import Draft
from lakepact.errors import InvalidRequest, OutcomeUnknown, Unreadable
from lakepact.iceberg import names as words
from lakepact.iceberg.draft import Context
from lakepact.iceberg.errors import InvalidMetadata, InvalidUpdate, StaleUpdate
from lakepact.iceberg.expiry import Expired, expired
from lakepact.iceberg.fields import JsonObject
from lakepact.iceberg.files import collects
from lakepact.iceberg.finish import Applied
from lakepact.iceberg.locations import next_metadata_location, without_trailing_slash
from lakepact.iceberg.metadata import create_metadata
from lakepact.iceberg.parse import Update
from lakepact.iceberg.requests import Commit, CreateTable, Identifier
from lakepact.iceberg.requirements import Failure, check_all, is_creation
from lakepact.iceberg.successor import check_successor
from lakepact.iceberg.updates import apply
from lakepact.iceberg.validate import check_table_metadata


@dataclass(frozen=True, slots=True)
class Changed:
    """What a commit to one table comes to: where its metadata is then, or why it cannot be."""

    identifier: Identifier
    metadata_location: str | None = None
    failures: tuple[Failure, ...] = ()


class Tables:
    """Plans for tables of one warehouse."""

    def __init__(
        self,
        keys: Keys,
        warehouse: Warehouse,
        names: Names,
        namespaces: Namespaces,
        files: MetadataFiles,
        folders: Folders,
    ) -> None:
        self._keys = keys
        self._warehouse = warehouse
        self._names = names
        self._namespaces = namespaces
        self._files = files
        self._folders = folders
        self._earlier = Earlier(keys, names, files)

    # --- creating ---

    async def staged(self, draft: Draft, namespace: tuple[str, ...], request: CreateTable) -> JsonObject:
        """The metadata a table would begin with. Nothing is written: the client commits it later, or never."""
        identifier = Identifier(namespace, request.name)
        properties = await self._namespaces.enter(draft, namespace)
        await self.refuse_taken(draft, identifier)
        uuid = draft.new_uuid()
        check_properties(request.properties)
        location = request.location or self._warehouse.new_location(identifier, uuid, properties)
        metadata = await draft.compute(
            create_metadata,
            schema=request.schema,
            spec=request.spec,
            order=request.order,
            properties=request.properties,
            location=without_trailing_slash(location),
            uuid=uuid,
            now_ms=draft.now_ms,
        )
        self._warehouse.check_metadata(metadata)
        return metadata

    async def check_staged(self, draft: Draft, identifier: Identifier, metadata: JsonObject) -> None:
        """Refuse a location that overlaps another table's, for a client that will create the table later."""
        await self._folders.check_staged(draft, identifier, metadata["location"], metadata["table-uuid"])

    async def create(self, draft: Draft, namespace: tuple[str, ...], request: CreateTable) -> JsonObject:
        metadata = await self.staged(draft, namespace, request)
        pointer = await self._begin(draft, Identifier(namespace, request.name), metadata, Change.CREATE)
        return _result(pointer)

    async def _begin(self, draft: Draft, identifier: Identifier, metadata: JsonObject, change: Change) -> Pointer:
        """A table that is new under this name, with metadata that has no file yet."""
        location = next_metadata_location(metadata, None, draft.unique_name(metadata["table-uuid"]))
        self._warehouse.blob_name(location)
        digest = await draft.put(location, metadata, self._files.most_bytes)
        pointer = Pointer.to(Kind.TABLE, identifier, metadata, location, change, digest=digest)
        await self.claim(draft, pointer)
        self._folders.check_paths(draft, pointer, metadata, {})
        return pointer

    async def claim(self, draft: Draft, pointer: Pointer) -> None:
        """Write name, pointer and location of a table that was not there, of whatever kind."""
        returns = await claim_id(draft, self._keys, pointer)
        await self._folders.claim(draft, pointer, returns=returns)

    async def refuse_taken(self, draft: Draft, identifier: Identifier) -> None:
        there = await self._names.find(draft, identifier)
        if there is not None:
            raise already_exists(there)

    # --- committing ---

    async def commit(self, draft: Draft, commit: Commit) -> JsonObject:
        """One table. Every requirement that does not hold is named."""
        changed = await self.change(draft, commit)
        if changed.failures:
            raise failed_requirements([(changed.identifier, changed.failures)], changed.failures[0].message)
        return {"metadata-location": changed.metadata_location}

    async def commit_all(self, draft: Draft, commits: Iterable[Commit]) -> JsonObject:
        """All tables or none. Every requirement of every table that does not hold is named."""
        commits = tuple(commits)
        for commit in commits:
            check_property_updates(commit.updates)
        already = [await self._already(draft, commit) for commit in commits]
        if any(already):
            return _results(await self._change_rest(draft, commits, already))
        all_changed = [await self._change(draft, commit) for commit in commits]
        failed = [changed for changed in all_changed if changed.failures]
        if failed:
            tables = ", ".join(shown(changed.identifier) for changed in failed)
            first = failed[0].failures[0].message
            raise failed_requirements(
                [(changed.identifier, changed.failures) for changed in failed],
                f"Transaction failed: requirement not met for table {tables}: {first}",
            )
        return _results(all_changed)

    async def _change_rest(
        self, draft: Draft, commits: tuple[Commit, ...], already: list[Changed | None]
    ) -> list[Changed]:
        """Some tables show that this commit has taken effect before. It was atomic, so then all of it has."""
        if all(found is not None or not leaves_traces(commit) for commit, found in zip(commits, already, strict=True)):
            return [
                found or await self._as_it_is(draft, commit) for commit, found in zip(commits, already, strict=True)
            ]
        # Some show it and others, which should, do not: theirs was undone since, or the snapshots came by another way.
        try:
            changed = [
                found or await self._change(draft, commit) for commit, found in zip(commits, already, strict=True)
            ]
        except (Refusal, InvalidRequest, StaleUpdate) as error:
            raise OutcomeUnknown(draft.transaction_id, f"some of its snapshots are in place; but {error}") from error
        if any(one.failures for one in changed):
            raise OutcomeUnknown(draft.transaction_id, "some of its snapshots are in place, and some requirements fail")
        return changed

    async def _as_it_is(self, draft: Draft, commit: Commit) -> Changed:
        identifier = named(commit)
        pointer = await self._names.find_kind(draft, identifier, Kind.TABLE)
        return Changed(identifier, pointer.metadata_location if pointer is not None else None)

    async def change(self, draft: Draft, commit: Commit) -> Changed:
        check_property_updates(commit.updates)
        return await self._already(draft, commit) or await self._change(draft, commit)

    async def _already(self, draft: Draft, commit: Commit) -> Changed | None:
        """What a commit comes to that took effect before."""
        table = await self._earlier.table_of(draft, commit)
        return None if table is None else Changed(named(commit), table.metadata_location)

    async def shows(self, draft: Draft, commit: Commit) -> bool:
        """Whether a table shows that this very commit took effect before."""
        return await self._earlier.table_of(draft, commit) is not None

    async def _change(self, draft: Draft, commit: Commit) -> Changed:
        identifier = named(commit)
        pointer = await self._names.find(draft, identifier)
        if is_creation(commit.requirements):
            return await self._change_new(draft, identifier, commit, pointer)
        if pointer is None or pointer.kind is not Kind.TABLE:
            raise missing(identifier, Kind.TABLE)
        return await self._change_old(draft, identifier, commit, pointer)

    async def _change_new(self, draft: Draft, identifier: Identifier, commit: Commit, there: Pointer | None) -> Changed:
        properties = await self._namespaces.enter(draft, identifier.namespace)
        if there is not None:
            if there.kind is not Kind.TABLE:
                raise already_exists(there)
            file = await self._files.of(there)
            return Changed(identifier, failures=check_all(file.document, commit.requirements))
        uuid = assigned_uuid(commit.updates) or draft.new_uuid()
        location = self._warehouse.new_location(identifier, uuid, properties)
        context = Context(draft.now_ms, new_uuid=uuid, new_location=location)
        applied = await draft.compute(apply, None, commit.updates, context)
        self._warehouse.check_metadata(applied.metadata)
        pointer = await self._begin(draft, identifier, applied.metadata, Change.CREATE)
        return Changed(identifier, pointer.metadata_location)

    async def _change_old(self, draft: Draft, identifier: Identifier, commit: Commit, pointer: Pointer) -> Changed:
        file = await self._files.of(pointer)
        base = draft.starts_from(file)
        failures = check_all(base, commit.requirements)
        if failures:
            return Changed(identifier, failures=failures)
        context = Context(draft.now_ms, previous_location=pointer.metadata_location)
        applied = await draft.compute(apply, base, commit.updates, context)
        if not applied.changed:
            # Beside other tables this one is a guard: what it requires must hold when they change.
            draft.depend_on(self._keys.table(pointer.id))
            return Changed(identifier, pointer.metadata_location)
        new = await self._next(draft, pointer, applied, file)
        self._folders.check_paths(draft, new, applied.metadata, base)
        if new.location != pointer.location:
            await self._folders.claim(draft, new)
            await self._folders.release(draft, pointer)
        key = self._keys.table(pointer.id)
        draft.write(key, new.to_json())
        draft.commits.setdefault(key, []).append(commit)
        return Changed(identifier, new.metadata_location)

    async def expire(self, draft: Draft, identifier: Identifier, in_use: Collection[int]) -> JsonObject:
        """Remove what the table's own properties let go of. What that is follows from the version it is removed from:
        one that moves meanwhile is judged again."""
        pointer = await self._names.table(draft, identifier)
        base = (await self._files.of(pointer)).document
        gone = expired(base, draft.now_ms, in_use) if collects(base) else Expired((), ())
        if gone:
            updates = [
                *(Update(words.REMOVE_SNAPSHOT_REF, {"ref-name": name}) for name in gone.refs),
                Update(words.REMOVE_SNAPSHOTS, {"snapshot-ids": list(gone.snapshots)}),
            ]
            await self._change_old(draft, identifier, Commit(identifier, (), tuple(updates)), pointer)
        return {"snapshots": list(gone.snapshots), "refs": list(gone.refs)}

    async def _next(self, draft: Draft, pointer: Pointer, applied: Applied, base: MetadataFile) -> Pointer:
        """The pointer to the next version, whose file goes into the draft."""
        metadata = applied.metadata
        self._warehouse.check_metadata(metadata, base.document)
        location = next_metadata_location(metadata, pointer.metadata_location, draft.unique_name(pointer.id))
        digest = await draft.put(location, metadata, self._files.most_bytes_after(base))
        if _deletes_old_metadata(metadata):
            draft.dropped_files.extend(applied.dropped_files)
        return Pointer.to(
            Kind.TABLE,
            pointer.identifier,
            metadata,
            location,
            Change.COMMIT,
            pointer.metadata_location,
            digest=digest,
        )

    # --- whole documents ---

    async def replace(
        self, draft: Draft, pointer: Pointer, *, text: bytes | None = None, location: str | None = None
    ) -> str:
        """The next version of a table as a whole document: these bytes, or a file that is there. Where it is."""
        what = location or "the metadata document"
        if location is not None:
            self._check_own(pointer, location)
        try:
            raw = text if text is not None else await self._files.raw_new(what)
            check_size(len(raw), self._files.most_bytes)
            draft.base_bytes = max(draft.base_bytes, len(raw))
            metadata = await draft.compute(_checked, what, raw)
        except (Unreadable, InvalidMetadata) as error:
            raise BadRequest(f"{what} cannot follow {pointer.metadata_location}: {error}") from error
        # If this one is damaged, that is no fault of the request.
        base = draft.starts_from(await self._files.of(pointer))
        try:
            await draft.compute(check_successor, base, metadata)
        except (InvalidMetadata, InvalidUpdate) as error:
            raise BadRequest(f"{what} cannot follow {pointer.metadata_location}: {error}") from error
        if location == pointer.metadata_location:
            return location
        log = metadata.get("metadata-log") or []
        if (
            log != (base.get("metadata-log") or [])
            and log[-1:] != []
            and log[-1]["metadata-file"] != pointer.metadata_location
        ):
            raise CommitFailed(
                f"{what} follows {log[-1]['metadata-file']}, and the table is at {pointer.metadata_location}. Refresh "
                f"and try again"
            )
        self._warehouse.check_metadata(metadata, base)
        old, new = base.get("properties") or {}, metadata.get("properties") or {}
        check_properties([name for name in {*old, *new} if old.get(name) != new.get(name)])
        digest = digest_of(raw)
        if location is None:
            # Named by its content: whoever hands it in again finds it there.
            location, digest = await draft.put_named(
                metadata,
                lambda digest: next_metadata_location(metadata, pointer.metadata_location, digest),
                self._files.most_bytes,
            )
        following = Pointer.to(
            Kind.TABLE,
            pointer.identifier,
            metadata,
            location,
            Change.COMMIT,
            pointer.metadata_location,
            digest=digest,
        )
        self._folders.check_paths(draft, following, metadata, base)
        if following.location != pointer.location:
            await self._folders.claim(draft, following)
            await self._folders.release(draft, pointer)
        draft.write(self._keys.table(pointer.id), following.to_json())
        return location

    def _check_own(self, pointer: Pointer, location: str) -> None:
        """A document that is handed in by its place lies in its table: others' are not read, whatever they hold."""
        folder = self._warehouse.blob_name(pointer.location)
        current = self._warehouse.blob_name(pointer.metadata_location).rpartition("/")[0]
        name = self._warehouse.blob_name(location, "metadata-location")
        if not name.startswith((f"{folder}/", f"{current}/")):
            raise BadRequest(
                f"{location} lies outside of table {shown(pointer.identifier)} ({pointer.location}). Put the document "
                f"into the table's own folder"
            )

    # --- registering ---

    async def register(
        self, draft: Draft, identifier: Identifier, metadata_location: str, *, overwrite: bool
    ) -> JsonObject:
        """A table whose metadata file is there already."""
        try:
            text = await self._files.raw_new(metadata_location)
            draft.base_bytes = max(draft.base_bytes, len(text))
            metadata = await draft.compute(_checked, metadata_location, text)
        except (Unreadable, InvalidMetadata) as error:
            raise BadRequest(f"{metadata_location} cannot be registered: {error}") from error
        if not metadata.get("table-uuid"):
            raise BadRequest(
                f"{metadata_location} cannot be registered: its metadata has no table-uuid; upgrade it first"
            )
        self._warehouse.check_metadata(metadata)
        check_properties(metadata.get("properties") or {})
        await self._namespaces.enter(draft, identifier.namespace)
        there = await self._names.find(draft, identifier)
        if there is not None and (there.kind is not Kind.TABLE or not overwrite):
            await self.refuse_taken(draft, identifier)
        previous = there.metadata_location if there is not None else None
        digest = digest_of(text)
        pointer = Pointer.to(
            Kind.TABLE, identifier, metadata, metadata_location, Change.REGISTER, previous, digest=digest
        )
        self._folders.check_paths(draft, pointer, metadata, {})
        if there is not None and there.id == pointer.id:
            if there.location != pointer.location:
                await self._folders.claim(draft, pointer)
                await self._folders.release(draft, there)
            draft.write(self._keys.table(pointer.id), pointer.to_json())
        else:
            if there is not None:
                await self._let_go(draft, there, purge=False)
                if there.location == pointer.location:
                    # Whoever puts one table in the place of another means its folder too.
                    await self._folders.release(draft, there)
            await self.claim(draft, pointer)
        return _result(pointer)

    # --- renaming and dropping ---

    async def rename(self, draft: Draft, source: Identifier, target: Identifier, kind: Kind) -> JsonObject:
        """Tables and views alike: the name moves, and the pointer says so."""
        pointer = await self._names.find_kind(draft, source, kind)
        if pointer is None:
            raise missing(source, kind)
        if source == target:
            return {}
        await self._namespaces.enter(draft, target.namespace)
        there = await self._names.find(draft, target)
        if there is not None:
            what = "View" if there.kind is Kind.VIEW else "Table"
            raise AlreadyExists(f"Cannot rename {shown(source)} to {shown(target)}. {what} already exists")
        old_name, new_name = self._keys.name(source), self._keys.name(target)
        await draft.read(old_name, new_name)
        moved = Pointer(
            kind,
            pointer.id,
            target,
            pointer.metadata_location,
            pointer.previous_metadata_location,
            Change.RENAME,
            pointer.summary,
        )
        draft.write(old_name, None)
        draft.write(new_name, {"kind": kind, "id": pointer.id})
        draft.write(self._names.pointer_key(pointer), moved.to_json())
        return {}

    async def drop(self, draft: Draft, identifier: Identifier, kind: Kind, *, purge: bool = False) -> JsonObject:
        pointer = await self._names.find_kind(draft, identifier, kind)
        if pointer is None:
            raise missing(identifier, kind)
        [_] = await draft.read(self._keys.name(identifier))
        draft.write(self._keys.name(identifier), None)
        await self._let_go(draft, pointer, purge=purge)
        return _result(pointer)

    async def unregister(self, draft: Draft, identifier: Identifier) -> JsonObject:
        """A drop whose answer is the table. If that cannot be read, it stays."""
        pointer = await self._names.table(draft, identifier)
        await self._files.of(pointer)
        return await self.drop(draft, identifier, Kind.TABLE)

    async def _let_go(self, draft: Draft, pointer: Pointer, *, purge: bool) -> None:
        """The pointer ends here. What it left behind is noted: files go later, by collection, never in a request.

        Its location stays its own: it may come back, and nobody else's files may lie where its are deleted.
        """
        dropped, key = self._keys.dropped(pointer.id), self._names.pointer_key(pointer)
        governance = self._keys.governance(pointer.id)
        levels = [self._keys.namespace(one) for one in prefixes(pointer.identifier.namespace)]
        # The namespaces stay while there is something in them, and more than that does not matter here.
        [_, cell, said], namespaces = await draft.read_and_glance([dropped, key, governance], levels)
        refuse_protected(pointer, said.value)
        # Protection that comes at the same moment counts.
        draft.depend_on(governance)
        draft.write(key, None)
        if cell.revision == 1 and cell.writer == draft.transaction_id:
            # It came to be in this very transaction: nobody has seen it, and there is nothing to come back to.
            await self._folders.release(draft, pointer)
        note = {**pointer.to_json(), "change": Change.DROP, "dropped-ms": draft.now_ms, "purge": purge}
        draft.write(dropped, {**note, "namespace-ids": [id_of(one) for one in namespaces]})


def _checked(location: str, text: bytes) -> JsonObject:
    return check_table_metadata(parsed(location, text))


def already_exists(there: Pointer) -> AlreadyExists:
    """The refusal of a table under a name that stands for something. Iceberg's clients know these words."""
    match there.kind:
        case Kind.TABLE:
            return AlreadyExists(f"Table already exists: {shown(there.identifier)}")
        case Kind.VIEW:
            return AlreadyExists(f"View with same name already exists: {shown(there.identifier)}")
        case Kind.DELTA:
            return AlreadyExists(f"Delta table with same name already exists: {shown(there.identifier)}")


def _result(pointer: Pointer) -> JsonObject:
    return {"metadata-location": pointer.metadata_location, DIGEST: pointer.digest}


def _results(all_changed: Iterable[Changed]) -> JsonObject:
    return {
        "results": [
            {"identifier": identifier_json(changed.identifier), "metadata-location": changed.metadata_location}
            for changed in all_changed
            if changed.metadata_location is not None
        ]
    }


def failed_requirements(failed: Iterable[tuple[Identifier, tuple[Failure, ...]]], message: str) -> CommitFailed:
    """A refusal that names every requirement that does not hold, what it expected, and what is there."""
    named = [
        {
            "identifier": identifier_json(identifier),
            "requirement": failure.requirement.body,
            "expected": failure.expected,
            "actual": failure.actual,
        }
        for identifier, failures in failed
        for failure in failures
    ]
    return CommitFailed(message, {"failed-requirements": named})


def check_property_updates(updates: Iterable[Update]) -> None:
    """Reserved properties are neither set nor removed."""
    for update in updates:
        if update.action == words.SET_PROPERTIES:
            check_properties(update.body["updates"])
        elif update.action == words.REMOVE_PROPERTIES:
            check_properties(update.body["removals"])


def _deletes_old_metadata(metadata: JsonObject) -> bool:
    value: str = (metadata.get("properties") or {}).get(words.DELETE_AFTER_COMMIT, "false")
    return value.lower() == "true"
