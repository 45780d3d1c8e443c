"""The session policy that narrows a role to one table's folder: pure.

A session may do what both the role and this policy allow, so what is not said here is denied. One thing is denied
outright: writing metadata files. The catalog alone does that; engines only read them, and Spark deletes them with a
table that is purged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import orjson

from lakepact.server.vending.scope import NotScopable, Right, Scope

_MOST_CHARACTERS: Final = 2_048
"""What STS takes."""

_READ: Final = ["s3:GetObject"]
_ADD: Final = ["s3:GetObject", "s3:PutObject", "s3:AbortMultipartUpload", "s3:ListMultipartUploadParts"]
_WRITE: Final = [*_ADD, "s3:DeleteObject"]
_OBJECTS: Final = {Right.READ: _READ, Right.ADD: _ADD, Right.WRITE: _WRITE}
METADATA_FILE: Final = ".metadata.json"
"""What the names of metadata files end with, before `.gz` if they are old and packed."""

_KMS_READ: Final = ["kms:Decrypt"]
_KMS_WRITE: Final = ["kms:Decrypt", "kms:GenerateDataKey"]
_PARTITIONS: Final = ("aws-cn", "aws-us-gov", "aws-iso", "aws-iso-b")


def session_policy(scope: Scope, *, role_arn: str, kms_keys: Sequence[str] = ()) -> str:
    partition = next((one for one in _PARTITIONS if role_arn.startswith(f"arn:{one}:")), "aws")
    bucket = f"arn:{partition}:s3:::{scope.bucket}"
    writes = scope.right.writes
    statements: list[dict[str, Any]] = [
        {"Effect": "Allow", "Action": _OBJECTS[scope.right], "Resource": f"{bucket}/{scope.folder}/*"},
        {
            "Effect": "Allow",
            "Action": ["s3:ListBucket"],
            "Resource": bucket,
            "Condition": {"StringLike": {"s3:prefix": [f"{scope.folder}/*"]}},
        },
        # Where the bucket is, is no secret, and some clients ask.
        {"Effect": "Allow", "Action": ["s3:GetBucketLocation"], "Resource": bucket},
    ]
    if writes:
        alone = f"{bucket}/{scope.folder}/*{METADATA_FILE}*"
        statements.append({"Effect": "Deny", "Action": ["s3:PutObject"], "Resource": alone})
    if kms_keys:
        statements.append(
            {"Effect": "Allow", "Action": _KMS_WRITE if writes else _KMS_READ, "Resource": list(kms_keys)}
        )
    text = orjson.dumps({"Version": "2012-10-17", "Statement": statements}).decode()
    if len(text) > _MOST_CHARACTERS:
        raise NotScopable(
            f"the policy for {scope.location} has {len(text)} characters, and STS takes {_MOST_CHARACTERS}: no "
            f"credentials are given for it. Use remote signing, or a shorter location"
        )
    return text
