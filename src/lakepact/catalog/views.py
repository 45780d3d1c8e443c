"""Views: created, replaced, registered. Renaming and dropping is the same for views as for tables."""

from __future__ import annotations

from lakepact.catalog.errors import AlreadyExists, BadRequest, IllegalArgument
from lakepact.catalog.files import MetadataFiles, digest_of, parsed
from lakepact.catalog.ids import cells_of, claim_id
from lakepact.catalog.keys import Keys
from lakepact.catalog.names import Names
from lakepact.catalog.namespaces import Namespaces
from lakepact.catalog.overlaps import Folders
from lakepact.catalog.pointers import Change, Kind, Pointer, shown
from lakepact.catalog.tables import check_property_updates, failed_requirements
from lakepact.catalog.warehouse import Warehouse, check_properties
from lakepact.catalog.work import Draft
from lakepact.errors import Unreadable
from lakepact.iceberg.bodies import check_view_version
from lakepact.iceberg.errors import InvalidIceberg, InvalidUpdate
from lakepact.iceberg.fields import (
    JsonObject,
    check_depth,
    filled_text,
    int32,
    int64,
    json_list,
    json_object,
    text_map,
)
from lakepact.iceberg.locations import next_metadata_location, without_trailing_slash
from lakepact.iceberg.requests import Commit, CreateView, Identifier
from lakepact.iceberg.requirements import check_all
from lakepact.iceberg.schemas import check_schema
from lakepact.iceberg.views import apply_to_view, create_view_metadata, read_view


class Views:
    """Plans for views of one warehouse."""

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

    async def create(self, draft: Draft, namespace: tuple[str, ...], request: CreateView) -> JsonObject:
        identifier = Identifier(namespace, request.name)
        properties = await self._namespaces.enter(draft, namespace)
        await self._refuse_taken(draft, identifier)
        check_properties(request.properties)
        uuid = draft.new_uuid()
        location = request.location or self._warehouse.new_location(identifier, uuid, properties)
        try:
            metadata = await draft.compute(
                create_view_metadata,
                schema=request.schema,
                version=request.version,
                properties=request.properties,
                location=without_trailing_slash(location),
                uuid=uuid,
                now_ms=draft.now_ms,
            )
        except InvalidUpdate as error:
            raise IllegalArgument(str(error)) from error
        self._warehouse.check_metadata(metadata)
        file_location = next_metadata_location(metadata, None, draft.unique_name(uuid))
        digest = await draft.put(file_location, metadata, self._files.most_bytes)
        pointer = Pointer.to(Kind.VIEW, identifier, metadata, file_location, Change.CREATE, digest=digest)
        return await self._begin(draft, pointer)

    async def commit(self, draft: Draft, commit: Commit) -> JsonObject:
        identifier = commit.identifier
        assert identifier is not None, "whoever parses a commit fills it in from the path"
        check_property_updates(commit.updates)
        pointer = await self._names.view(draft, identifier)
        file = await self._files.of(pointer)
        base = draft.starts_from(file)
        failures = check_all(base, commit.requirements)
        if failures:
            raise failed_requirements([(identifier, failures)], failures[0].message)
        try:
            applied = await draft.compute(apply_to_view, base, commit.updates, draft.now_ms)
        except InvalidUpdate as error:
            raise IllegalArgument(str(error)) from error
        if not applied.changed:
            return {"metadata-location": pointer.metadata_location}
        metadata = applied.metadata
        self._warehouse.check_metadata(metadata, base)
        location = next_metadata_location(metadata, pointer.metadata_location, draft.unique_name(pointer.id))
        digest = await draft.put(location, metadata, self._files.most_bytes_after(file))
        new = Pointer.to(
            Kind.VIEW, identifier, metadata, location, Change.COMMIT, pointer.metadata_location, digest=digest
        )
        if new.location != pointer.location:
            await self._folders.check_view(draft, new)
        draft.write(self._keys.view(pointer.id), new.to_json())
        return {"metadata-location": location}

    async def register(self, draft: Draft, identifier: Identifier, metadata_location: str) -> JsonObject:
        """A view whose metadata file is there already."""
        try:
            text = await self._files.raw_new(metadata_location)
            draft.base_bytes = max(draft.base_bytes, len(text))
            metadata = await draft.compute(_checked, metadata_location, text)
        except (Unreadable, InvalidIceberg) as error:
            raise BadRequest(f"{metadata_location} cannot be registered: {error}") from error
        self._warehouse.check_metadata(metadata)
        check_properties(metadata.get("properties") or {})
        await self._namespaces.enter(draft, identifier.namespace)
        await self._refuse_taken(draft, identifier)
        digest = digest_of(text)
        pointer = Pointer.to(Kind.VIEW, identifier, metadata, metadata_location, Change.REGISTER, digest=digest)
        return await self._begin(draft, pointer)

    async def _begin(self, draft: Draft, pointer: Pointer) -> JsonObject:
        # In one look: whether the id is free, and the place.
        name, folders = self._keys.name(pointer.identifier), self._folders.keys(pointer.location)
        await draft.read(*cells_of(self._keys, pointer.id), name, *folders)
        await self._folders.check_view(draft, pointer)
        await claim_id(draft, self._keys, pointer)
        return {"metadata-location": pointer.metadata_location}

    async def _refuse_taken(self, draft: Draft, identifier: Identifier) -> None:
        there = await self._names.find(draft, identifier)
        if there is None:
            return
        if there.kind is not Kind.VIEW:
            raise AlreadyExists(f"Table with same name already exists: {shown(identifier)}")
        raise AlreadyExists(f"View already exists: {shown(identifier)}")


def _checked(location: str, text: bytes) -> JsonObject:
    """View metadata from elsewhere, checked in full: a commit trusts what it starts from."""
    metadata = json_object(parsed(location, text), "view metadata")
    check_depth(metadata, "view metadata")
    for name in ("view-uuid", "location"):
        filled_text(metadata, name, "view metadata")
    for schema in json_list(metadata.get("schemas"), "schemas"):
        check_schema(schema, "schemas")
    for version in json_list(metadata.get("versions"), "versions"):
        check_view_version(version, "versions")
    for entry in json_list(metadata.get("version-log"), "version-log"):
        int64(json_object(entry, "version-log"), "timestamp-ms", "version-log")
        int32(entry, "version-id", "version-log")
    if metadata.get("properties") is not None:
        text_map(metadata, "properties", "view metadata")
    return read_view(metadata)
