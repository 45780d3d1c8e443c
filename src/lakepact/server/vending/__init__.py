"""Credentials for storage: short-lived, for one table, to read or to write; or requests signed one by one.

scope.py          what a credential is for, and what a provider promises
delegation.py     what a client gets beside a table's metadata
cache.py          credentials that were made before
outside.py        requests to the clouds' own services
wiring.py         from settings to vendors

sigv4.py          AWS's signature
aws_identity.py   the server's own AWS keys
aws_sts.py        keys for a role, for a while
s3_policy.py      the policy that narrows a role to one table
s3.py             credentials for S3
s3_requests.py    which requests to S3 are signed for whom
s3_signer.py      signing them
adls.py           a user-delegation SAS for Azure
gcs.py            a narrowed token for Google
"""

from lakepact.server.vending.delegation import Delegation, RightOf
from lakepact.server.vending.outside import Outside
from lakepact.server.vending.scope import NotScopable, ProviderFailed, Right
from lakepact.server.vending.wiring import vendors_of

__all__ = ["Delegation", "NotScopable", "Outside", "ProviderFailed", "Right", "RightOf", "vendors_of"]
