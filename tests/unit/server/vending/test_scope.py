"""A scope is one table's folder, and the policies made of it say nothing wider."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from lakepact.server.vending.gcs import boundary
from lakepact.server.vending.s3_policy import session_policy
from lakepact.server.vending.scope import Home, NotScopable, Right, Scope, scope_of
from tests.support.s3_guarded import ROLE, allows

ROOT = "s3://lake/wh"


def scope(
    location: str = f"{ROOT}/db/t-1", right: Right = Right.WRITE, properties: Mapping[str, str] | None = None
) -> Scope:
    return scope_of(ROOT, "lake", "wh", _home(location, properties), right)


def _home(location: str, properties: Mapping[str, str] | None = None) -> Home:
    return Home.of_new({"table-uuid": "1", "location": location, "properties": properties or {}})


def policy(right: Right, **more: Any) -> Any:
    return json.loads(session_policy(scope(right=right), role_arn=ROLE, **more))


def test_a_scope_is_the_folder_with_a_slash() -> None:
    assert scope().folder == "wh/db/t-1"
    assert scope().prefix == f"{ROOT}/db/t-1/"
    assert scope_of("s3://lake", "lake", "", _home("s3://lake/t"), Right.READ).folder == "t"
    # A table that was registered keeps the slash that it came with.
    assert scope(f"{ROOT}/db/t-1/") == scope(properties={"write.data.path": f"{ROOT}/db/t-1/data"}) == scope()


@pytest.mark.parametrize(
    "location",
    [
        ROOT,
        f"{ROOT}/",
        "s3://lake/wh2/t",
        "s3://other/wh/t",
        "s3://lake/t",
        f"{ROOT}/../t",
        f"{ROOT}/db//t",
        f"{ROOT}/*",
        f"{ROOT}/db/t?",
        f"{ROOT}/${{aws:username}}",
        f"{ROOT}/it's",
        f'{ROOT}/"t"',
        f"{ROOT}/a\\b",
        f"{ROOT}/a\nb",
    ],
)
def test_what_is_no_folder_of_the_warehouse_or_has_two_readings_is_no_scope(location: str) -> None:
    with pytest.raises(NotScopable):
        scope(location)


@pytest.mark.parametrize("name", ["write.data.path", "write.metadata.path", "write.object-storage.path"])
def test_files_elsewhere_are_no_part_of_it(name: str) -> None:
    for outside in (f"{ROOT}/db/u", f"{ROOT}/db/t-10", ROOT):
        with pytest.raises(NotScopable, match=name.replace(".", r"\.")):
            scope(properties={name: outside})
    for inside in ("", "elsewhere"):
        assert scope(properties={name: f"{ROOT}/db/t-1/{inside}"}) == scope()


def test_a_writers_policy() -> None:
    mine, other = "arn:aws:s3:::lake/wh/db/t-1/data/a", "arn:aws:s3:::lake/wh/db/t-10/data/a"
    for action in ("s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"):
        assert allows(policy(Right.WRITE), action, mine)
        assert not allows(policy(Right.WRITE), action, other)
    for action in ("s3:PutObjectAcl", "s3:DeleteBucket", "s3:GetObjectVersion", "s3:PutBucketPolicy", "iam:PassRole"):
        assert not allows(policy(Right.WRITE), action, mine)


def test_a_writers_policy_leaves_metadata_files_to_the_catalog() -> None:
    folder = "arn:aws:s3:::lake/wh/db/t-1"
    for name in ("metadata/00001-x.metadata.json", "elsewhere/00001-x.gz.metadata.json", "metadata/1.metadata.json.gz"):
        assert not allows(policy(Right.WRITE), "s3:PutObject", f"{folder}/{name}")
        # Spark deletes the files of a table that is purged itself.
        for action in ("s3:GetObject", "s3:DeleteObject"):
            assert allows(policy(Right.WRITE), action, f"{folder}/{name}")
    for name in ("metadata/snap-1.avro", "metadata/x.stats", "metadata/version-hint.text"):
        assert allows(policy(Right.WRITE), "s3:PutObject", f"{folder}/{name}")


def test_a_readers_policy() -> None:
    mine = "arn:aws:s3:::lake/wh/db/t-1/data/a"
    assert allows(policy(Right.READ), "s3:GetObject", mine)
    for action in ("s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"):
        assert not allows(policy(Right.READ), action, mine)


def test_the_policy_inside_a_transaction_adds_files_and_deletes_none() -> None:
    folder = "arn:aws:s3:::lake/wh/db/t-1"
    for action in ("s3:GetObject", "s3:PutObject", "s3:AbortMultipartUpload", "s3:ListMultipartUploadParts"):
        assert allows(policy(Right.ADD), action, f"{folder}/data/a")
    assert not allows(policy(Right.ADD), "s3:DeleteObject", f"{folder}/data/a")
    assert not allows(policy(Right.ADD), "s3:PutObject", f"{folder}/metadata/00001-x.metadata.json")
    key = "arn:aws:kms:eu-central-1:1:key/x"
    assert allows(policy(Right.ADD, kms_keys=[key]), "kms:GenerateDataKey", key)


def test_a_listing_is_of_the_folder() -> None:
    bucket = "arn:aws:s3:::lake"
    for prefix in ("wh/db/t-1/", "wh/db/t-1/data/"):
        assert allows(policy(Right.READ), "s3:ListBucket", bucket, prefix)
    for outside in (None, "", "wh/", "wh/db/t-1", "wh/db/t-10/"):
        assert not allows(policy(Right.READ), "s3:ListBucket", bucket, outside)
    assert not allows(policy(Right.READ), "s3:ListBucket", "arn:aws:s3:::other", "wh/db/t-1/")


def test_keys_for_encryption_and_other_partitions() -> None:
    key = "arn:aws:kms:eu-central-1:1:key/x"
    assert allows(policy(Right.WRITE, kms_keys=[key]), "kms:GenerateDataKey", key)
    assert not allows(policy(Right.READ, kms_keys=[key]), "kms:GenerateDataKey", key)
    assert allows(policy(Right.READ, kms_keys=[key]), "kms:Decrypt", key)
    assert not allows(policy(Right.READ, kms_keys=[key]), "kms:Decrypt", key + "2")
    assert '"arn:aws-cn:s3:::lake/' in session_policy(scope(), role_arn="arn:aws-cn:iam::1:role/lakepact")


def test_a_policy_that_sts_would_not_take_is_said_here() -> None:
    with pytest.raises(NotScopable, match="2048"):
        session_policy(scope(f"{ROOT}/{'x' * 900}"), role_arn=ROLE)


def test_googles_boundary() -> None:
    [rule] = boundary(scope(right=Right.READ))["accessBoundary"]["accessBoundaryRules"]
    assert rule["availableResource"] == "//storage.googleapis.com/projects/_/buckets/lake"
    assert rule["availablePermissions"] == ["inRole:roles/storage.objectViewer"]
    assert rule["availabilityCondition"]["expression"] == (
        "resource.name.startsWith('projects/_/buckets/lake/objects/wh/db/t-1/') || "
        "api.getAttribute('storage.googleapis.com/objectListPrefix', '').startsWith('wh/db/t-1/')"
    )
    [rule] = boundary(scope())["accessBoundary"]["accessBoundaryRules"]
    assert rule["availablePermissions"] == ["inRole:roles/storage.objectUser"]
    # Creating an object in the place of another needs the permission to delete, which these roles lack.
    [rule] = boundary(scope(right=Right.ADD))["accessBoundary"]["accessBoundaryRules"]
    assert rule["availablePermissions"] == [
        "inRole:roles/storage.objectViewer",
        "inRole:roles/storage.objectCreator",
    ]
