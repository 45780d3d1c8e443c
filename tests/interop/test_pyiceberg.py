"""PyIceberg, as it is, against a server process: everything its users do, and nothing lost when they do it together."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NoSuchNamespaceError,
    NoSuchTableError,
    NoSuchViewError,
    TableAlreadyExistsError,
)
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IntegerType, LongType, NestedField, StringType
from pyiceberg.view.metadata import ViewVersion

from tests.support.live_tables import Scanned, catalog_at, scan_live_tables, scanned_after_refusals, statuses
from tests.support.server import Server, running_server
from tests.support.waiting import wait_until

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])

SCANS: list[Scanned] = []


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running_server(tmp_path_factory.mktemp("pyiceberg")) as running:
        yield running


@pytest.fixture(autouse=True)
def nothing_live_is_deleted(server: Server) -> Iterator[None]:
    """After every test in which the server answered 409 or 5xx, every live table is read in full."""
    with scanned_after_refusals(server) as scans:
        yield
    SCANS.extend(scans)


@pytest.fixture
def catalog(server: Server) -> Catalog:
    return catalog_at(server.url)


@pytest.fixture
def namespace(catalog: Catalog, request: pytest.FixtureRequest) -> str:
    """A namespace of this test's own."""
    name = request.node.name.removeprefix("test_")[:60].replace("[", "_").replace("]", "")
    catalog.create_namespace(name)
    return str(name)


def rows(*pairs: tuple[int, str | None]) -> pa.Table:
    return pa.table({"id": [one for one, _ in pairs], "name": [name for _, name in pairs]}, schema=SCHEMA)


def ids(catalog: Catalog, identifier: tuple[str, ...]) -> list[int]:
    return sorted(catalog.load_table(identifier).scan().to_arrow()["id"].to_pylist())


# --- namespaces and names ---


def test_namespaces_nest_have_properties_and_are_dropped_when_empty(catalog: Catalog, namespace: str) -> None:
    catalog.create_namespace((namespace, "inner"), {"owner": "ada"})
    catalog.create_namespace((namespace, "inner", "most"))
    assert catalog.list_namespaces((namespace,)) == [(namespace, "inner")]
    assert catalog.list_namespaces((namespace, "inner")) == [(namespace, "inner", "most")]
    assert catalog.load_namespace_properties((namespace, "inner"))["owner"] == "ada"
    summary = catalog.update_namespace_properties((namespace, "inner"), {"owner"}, {"team": "lake"})
    assert (summary.removed, summary.updated) == (["owner"], ["team"])
    with pytest.raises(NamespaceAlreadyExistsError):
        catalog.create_namespace((namespace, "inner"))
    with pytest.raises(NamespaceNotEmptyError):
        catalog.drop_namespace((namespace, "inner"))
    catalog.drop_namespace((namespace, "inner", "most"))
    catalog.drop_namespace((namespace, "inner"))
    with pytest.raises(NoSuchNamespaceError):
        catalog.load_namespace_properties((namespace, "inner"))


@pytest.mark.parametrize("name", ["with space", "with.dot", "with-dash", "grüße_東京", "a+b", "50%", "UPPER", "a/b"])
def test_an_odd_name_is_created_written_renamed_and_dropped(catalog: Catalog, server: Server, name: str) -> None:
    namespace = (f"odd {name}", name)
    catalog.create_namespace(namespace[:1])
    catalog.create_namespace(namespace)
    identifier = (*namespace, name)
    catalog.create_table(identifier, SCHEMA).append(rows((1, name)))
    assert catalog.list_tables(namespace) == [identifier]
    assert catalog.table_exists(identifier)
    assert catalog.load_table(identifier).scan().to_arrow()["name"].to_pylist() == [name]
    renamed = (namespace[0], f"{name} renamed")
    catalog.rename_table(identifier, renamed)
    assert ids(catalog, renamed) == [1]
    catalog.drop_table(renamed)
    with pytest.raises(NoSuchTableError):
        catalog.load_table(renamed)


# --- tables ---


def test_a_table_is_created_appended_to_and_read(catalog: Catalog, namespace: str) -> None:
    identifier = (namespace, "t")
    table = catalog.create_table(identifier, SCHEMA, properties={"owner": "ada"})
    table.append(rows((1, "a"), (2, "b")))
    table.append(rows((3, None)))
    assert ids(catalog, identifier) == [1, 2, 3]
    found = catalog.load_table(identifier)
    assert found.properties["owner"] == "ada"
    assert found.scan(row_filter="id >= 2", selected_fields=("id",)).to_arrow().num_rows == 2
    with pytest.raises(TableAlreadyExistsError):
        catalog.create_table(identifier, SCHEMA)
    assert catalog.create_table_if_not_exists(identifier, SCHEMA).metadata.table_uuid == found.metadata.table_uuid


def test_rows_are_overwritten_deleted_and_upserted(catalog: Catalog, namespace: str) -> None:
    identifier = (namespace, "t")
    schema = Schema(
        NestedField(1, "id", LongType(), required=True),
        NestedField(2, "name", StringType()),
        identifier_field_ids=[1],
    )
    arrow = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])
    table = catalog.create_table(identifier, schema)
    table.append(pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"]}, schema=arrow))
    table.delete("id = 2")
    assert ids(catalog, identifier) == [1, 3]
    result = table.upsert(pa.table({"id": [3, 4], "name": ["C", "d"]}, schema=arrow))
    assert (result.rows_updated, result.rows_inserted) == (1, 1)
    found = catalog.load_table(identifier).scan().to_arrow().sort_by("id").to_pylist()
    assert found == [{"id": 1, "name": "a"}, {"id": 3, "name": "C"}, {"id": 4, "name": "d"}]
    table.overwrite(pa.table({"id": [9], "name": ["z"]}, schema=arrow))
    assert ids(catalog, identifier) == [9]
    table.delete("id = 9")
    assert ids(catalog, identifier) == []


def test_schemas_evolve(catalog: Catalog, namespace: str) -> None:
    identifier = (namespace, "t")
    table = catalog.create_table(
        identifier, Schema(NestedField(1, "id", IntegerType()), NestedField(2, "name", StringType()))
    )
    table.append(pa.table({"id": pa.array([1], pa.int32()), "name": ["a"]}))
    with table.update_schema() as update:
        update.add_column("more", StringType(), doc="new")
        update.rename_column("name", "title")
        update.update_column("id", LongType())
    with table.update_schema() as update:
        update.move_first("more")
    table.append(pa.table({"more": ["x"], "id": pa.array([2], pa.int64()), "title": ["b"]}))
    found = catalog.load_table(identifier).scan().to_arrow().sort_by("id").to_pylist()
    assert found == [{"more": None, "id": 1, "title": "a"}, {"more": "x", "id": 2, "title": "b"}]
    with table.update_schema(allow_incompatible_changes=True) as update:
        update.delete_column("title")
    assert catalog.load_table(identifier).schema().column_names == ["more", "id"]
    assert [one.schema_id for one in catalog.load_table(identifier).metadata.schemas] == [0, 1, 2, 3]


def test_partitions_and_sort_orders_evolve(catalog: Catalog, namespace: str) -> None:
    identifier = (namespace, "t")
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "name", StringType()))
    table = catalog.create_table(
        identifier,
        schema,
        partition_spec=PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "id_part")),
        sort_order=SortOrder(SortField(1, IdentityTransform())),
    )
    table.append(rows((1, "a"), (2, "b")))
    with table.update_spec() as update:
        update.add_field("name", IdentityTransform(), "name_part")
        update.remove_field("id_part")
    table.append(rows((3, "c"), (4, "c")))
    with table.update_sort_order() as order:
        order.desc("name", IdentityTransform())
    found = catalog.load_table(identifier)
    assert [field.name for field in found.spec().fields] == ["name_part"]
    assert (found.metadata.default_spec_id, found.metadata.default_sort_order_id) == (1, 2)
    assert ids(catalog, identifier) == [1, 2, 3, 4]
    assert found.scan(row_filter="name = 'c'").to_arrow().num_rows == 2


def test_branches_and_tags_are_made_written_to_and_removed(catalog: Catalog, namespace: str) -> None:
    identifier = (namespace, "t")
    table = catalog.create_table(identifier, SCHEMA)
    table.append(rows((1, "a")))
    first = table.current_snapshot()
    assert first is not None
    with table.manage_snapshots() as manage:
        manage.create_tag(first.snapshot_id, "v1").create_branch(first.snapshot_id, "work")
    table.append(rows((2, "b")))
    table.append(rows((3, "c")), branch="work")
    found = catalog.load_table(identifier)
    assert {name: ref.snapshot_ref_type.value for name, ref in found.refs().items()} == {
        "main": "branch",
        "v1": "tag",
        "work": "branch",
    }
    assert sorted(found.scan().use_ref("work").to_arrow()["id"].to_pylist()) == [1, 3]
    assert found.scan().use_ref("v1").to_arrow().num_rows == 1
    assert ids(catalog, identifier) == [1, 2]
    with found.manage_snapshots() as manage:
        manage.remove_tag("v1").remove_branch("work")
    assert list(catalog.load_table(identifier).refs()) == ["main"]


def test_the_past_can_be_read_and_expired(catalog: Catalog, namespace: str) -> None:
    identifier = (namespace, "t")
    table = catalog.create_table(identifier, SCHEMA)
    for number in range(3):
        table.append(rows((number, "x")))
    history = [entry.snapshot_id for entry in table.history()]
    assert [table.scan(snapshot_id=one).to_arrow().num_rows for one in history] == [1, 2, 3]
    table.maintenance.expire_snapshots().by_id(history[0]).commit()
    found = catalog.load_table(identifier)
    assert [one.snapshot_id for one in found.snapshots()] == history[1:]
    assert ids(catalog, identifier) == [0, 1, 2]


def test_a_transaction_of_one_table_is_one_version(catalog: Catalog, namespace: str) -> None:
    identifier = (namespace, "t")
    table = catalog.create_table(identifier, SCHEMA)
    with table.transaction() as transaction:
        with transaction.update_schema() as update:
            update.add_column("more", StringType())
        transaction.set_properties(a="b")
        transaction.append(pa.table({"id": [1], "name": ["a"], "more": ["x"]}))
    found = catalog.load_table(identifier)
    assert len(found.metadata.metadata_log) == 1
    assert found.properties["a"] == "b"
    assert found.scan().to_arrow().to_pylist() == [{"id": 1, "name": "a", "more": "x"}]


def test_a_table_is_created_with_its_first_rows_in_one_step(catalog: Catalog, namespace: str) -> None:
    identifier = (namespace, "t")
    with catalog.create_table_transaction(identifier, SCHEMA, properties={"a": "b"}) as transaction:
        assert not catalog.table_exists(identifier)
        transaction.append(rows((1, "a"), (2, "b")))
    found = catalog.load_table(identifier)
    assert found.metadata.metadata_log == []
    assert found.scan().to_arrow().num_rows == 2


def test_of_two_that_create_the_same_table_with_rows_one_is_refused_and_the_other_is_whole(
    catalog: Catalog, namespace: str
) -> None:
    identifier = (namespace, "t")
    one = catalog.create_table_transaction(identifier, SCHEMA)
    two = catalog.create_table_transaction(identifier, SCHEMA)
    one.append(rows((1, "one")))
    two.append(rows((2, "two")))
    one.commit_transaction()
    with pytest.raises((CommitFailedException, TableAlreadyExistsError)):
        two.commit_transaction()
    assert ids(catalog, identifier) == [1]


def test_tables_are_unregistered_by_dropping_and_registered_again(catalog: Catalog, namespace: str) -> None:
    identifier = (namespace, "t")
    table = catalog.create_table(identifier, SCHEMA)
    table.append(rows((1, "a")))
    location = table.metadata_location
    catalog.drop_table(identifier)
    assert not catalog.table_exists(identifier)
    catalog.register_table((namespace, "again"), location)
    assert ids(catalog, (namespace, "again")) == [1]
    catalog.purge_table((namespace, "again"))
    assert Path(location.removeprefix("file://")).is_file(), "purge is a mark, files go later"


def test_metadata_tables_can_be_inspected(catalog: Catalog, namespace: str) -> None:
    table = catalog.create_table((namespace, "t"), SCHEMA)
    table.append(rows((1, "a")))
    inspect = catalog.load_table((namespace, "t")).inspect
    assert inspect.snapshots().num_rows == 1
    assert inspect.files().num_rows == 1
    assert inspect.metadata_log_entries().num_rows == 2


# --- views ---


def test_a_view_is_created_loaded_listed_and_dropped(catalog: Catalog, namespace: str) -> None:
    identifier = (namespace, "v")
    version = ViewVersion.model_validate(
        {
            "version-id": 1,
            "schema-id": 0,
            "timestamp-ms": 1_700_000_000_000,
            "summary": {"engine-name": "test"},
            "representations": [{"type": "sql", "sql": "SELECT 1 AS id", "dialect": "spark"}],
            "default-namespace": [namespace],
        }
    )
    made = catalog.create_view(identifier, Schema(NestedField(1, "id", LongType())), version)
    assert made.metadata.current_version_id == 1
    assert catalog.view_exists(identifier)
    assert catalog.list_views(namespace) == [identifier]
    assert catalog.load_view(identifier).metadata.view_uuid == made.metadata.view_uuid
    with pytest.raises(NoSuchTableError):
        catalog.load_table(identifier)
    catalog.drop_view(identifier)
    assert not catalog.view_exists(identifier)
    with pytest.raises(NoSuchViewError):
        catalog.drop_view(identifier)


# --- together ---


def test_a_writer_that_is_behind_is_refused_and_loses_nothing(catalog: Catalog, server: Server, namespace: str) -> None:
    """PyIceberg tries a conflict again by itself only if the table says so. What it is told first is a 409."""
    identifier = (namespace, "t")
    catalog.create_table(identifier, SCHEMA, properties={"commit.retry.num-retries": "0"})
    stale, fresh = catalog.load_table(identifier), catalog.load_table(identifier)
    fresh.append(rows((1, "fresh")))
    start = server.log_end()
    with pytest.raises(CommitFailedException):
        stale.append(rows((2, "stale")))
    wait_until(lambda: 409 in statuses(server, start), "the server has logged no 409")
    assert ids(catalog, identifier) == [1]
    stale.refresh()
    stale.append(rows((2, "stale")))
    assert ids(catalog, identifier) == [1, 2]


def test_concurrent_writers_lose_nothing(server: Server, namespace: str) -> None:
    """They do get in each other's way: the server has refused some of it."""
    identifier = (namespace, "t")
    start = server.log_end()
    catalog_at(server.url).create_table(identifier, SCHEMA)
    writers, each = 4, 5
    at_once = threading.Barrier(writers)

    def write(writer: int) -> None:
        catalog = catalog_at(server.url)
        table = catalog.load_table(identifier)
        # All of them have the same version, so all but one are refused at their first attempt.
        at_once.wait()
        for number in range(each):
            row = rows((writer * 100 + number, str(writer)))
            while True:
                try:
                    table.append(row)
                    break
                except CommitFailedException:
                    continue  # after PyIceberg's own attempts
                finally:
                    table = catalog.load_table(identifier)

    with ThreadPoolExecutor(writers) as threads:
        list(threads.map(write, range(writers)))
    expected = sorted(writer * 100 + number for writer in range(writers) for number in range(each))
    assert ids(catalog_at(server.url), identifier) == expected
    scanned = scan_live_tables(server.url)
    assert scanned.rows >= len(expected)
    wait_until(lambda: 409 in statuses(server, start), "the server has logged no 409")


def test_concurrent_changes_of_different_kinds_all_arrive(server: Server, namespace: str) -> None:
    """Properties need no newest version, so the server carries them over; rows and columns are tried again."""
    identifier = (namespace, "t")
    catalog_at(server.url).create_table(identifier, SCHEMA)
    at_once = threading.Barrier(3)

    def until_done(step: str) -> None:
        catalog = catalog_at(server.url)
        at_once.wait()
        for number in range(5):
            while True:
                table = catalog.load_table(identifier)
                try:
                    if step == "rows":
                        table.append(pa.table({"id": [number], "name": [step]}, schema=SCHEMA))
                    elif step == "columns":
                        with table.update_schema() as update:
                            update.add_column(f"c{number}", StringType())
                    else:
                        with table.transaction() as transaction:
                            transaction.set_properties({f"p{number}": step})
                    break
                except CommitFailedException:
                    assert step != "properties", "a change of properties is never in anybody's way"

    with ThreadPoolExecutor(3) as threads:
        list(threads.map(until_done, ("rows", "columns", "properties")))
    found = catalog_at(server.url).load_table(identifier)
    assert {name for name in found.properties if name[0] == "p"} == {f"p{number}" for number in range(5)}
    assert found.schema().column_names == ["id", "name", *(f"c{number}" for number in range(5))]
    assert sorted(found.scan().to_arrow()["id"].to_pylist()) == list(range(5))


def test_after_all_of_this_every_snapshot_of_every_table_is_there(
    server: Server, catalog: Catalog, namespace: str, record_property: Callable[[str, object], None]
) -> None:
    catalog.create_table((namespace, "t"), SCHEMA).append(rows((1, "a")))
    scanned = scan_live_tables(server.url)
    assert scanned.rows >= 1
    told = statuses(server)
    assert not [status for status in told if status >= 500]
    refused = sum(status == 409 for status in told)
    figure = (
        f"PyIceberg: {len(told)} requests, {refused} of them 409, none 5xx; {len(SCANS)} scans after refusals; "
        f"at the end {scanned.tables} tables, {scanned.snapshots} snapshots, {scanned.rows} rows read"
    )
    record_property("figure", figure)
