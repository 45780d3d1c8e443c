"""From settings to vendors: which warehouse delegates, and how."""

from __future__ import annotations

import os
from collections.abc import Mapping

from lakepact.errors import InvalidSetting
from lakepact.kernel.ports import Clock
from lakepact.server.vending.adls import AdlsProvider, AzureIdentity
from lakepact.server.vending.aws_identity import OwnKeys, option
from lakepact.server.vending.aws_sts import Sts
from lakepact.server.vending.cache import Checked, Credentials
from lakepact.server.vending.delegation import Vendor
from lakepact.server.vending.gcs import STS, GcsProvider, GoogleIdentity
from lakepact.server.vending.outside import Outside
from lakepact.server.vending.s3 import S3Provider
from lakepact.server.vending.s3_requests import Endpoint
from lakepact.server.vending.s3_signer import S3Signer
from lakepact.settings import Place, StorageCredentials
from lakepact.stores.urls import azure_host, azure_place, azure_service, object_place


def vendors_of(places: Mapping[str, Place], outside: Outside, clock: Clock) -> dict[str, Vendor]:
    """Those warehouses whose settings say `credentials`."""
    return {
        name: _vendor(name, place, place.credentials, outside, clock)
        for name, place in places.items()
        if place.credentials is not None
    }


def _vendor(name: str, place: Place, given: StorageCredentials, outside: Outside, clock: Clock) -> Vendor:
    scheme = place.url.partition("://")[0]
    if scheme not in ("s3", "az", "abfss", "gs"):
        raise InvalidSetting(
            f"warehouse {name} has `credentials`, and {scheme}:// has none to give; remove them, or use s3, abfss or gs"
        )
    if given.remote_signing and scheme != "s3":
        raise InvalidSetting(f"warehouse {name}: remote_signing is for s3:// alone, not for {scheme}://")
    credentials = Credentials(clock)
    if scheme == "s3":
        return _s3(name, place, given, outside, clock, credentials)
    if scheme == "gs":
        at = object_place(place.url)
        provider = GcsProvider(
            GoogleIdentity(place.options, outside, clock), outside, clock, sts=given.sts_endpoint or STS
        )
        config = {"gcs.service.host": given.client_endpoint} if given.client_endpoint else {}
        return Vendor(place.url.rstrip("/"), at.bucket, at.prefix, config, provider, credentials)
    if scheme == "abfss":
        at, account = azure_place(place.url)
    else:
        at, account = object_place(place.url), place.options.get("account_name", "")
        if not account:
            raise InvalidSetting(f"warehouse {name}: credentials for az:// need the option account_name")
    host = azure_host(place.url, account)
    adls = AdlsProvider(
        AzureIdentity.of(place.options, given.authority),
        outside,
        clock,
        account=account,
        host=host,
        service=given.sts_endpoint or azure_service(host),
        duration_s=given.duration_s,
        reach=given.azure_scope,
    )
    return Vendor(place.url.rstrip("/"), at.bucket, at.prefix, {}, adls, credentials)


def _s3(
    name: str, place: Place, given: StorageCredentials, outside: Outside, clock: Clock, credentials: Credentials
) -> Vendor:
    if given.role_arn is None and not given.remote_signing:
        raise InvalidSetting(
            f"warehouse {name} has `credentials` without `role_arn` and without `remote_signing`; set one of them"
        )
    at, options = object_place(place.url), place.options
    url = given.client_endpoint or option(options, "endpoint", "endpoint_url", "endpoint_url_s3")
    endpoint = Endpoint(url, (option(options, "virtual_hosted_style_request") or "false").lower() == "true")
    if given.role_arn is None and not given.unsafe_sign_with_server_keys and not endpoint.is_amazon:
        # Amazon refuses a request with an x-amz- header that was not signed. Of others nobody knows.
        raise InvalidSetting(
            f"warehouse {name} has `remote_signing` without `role_arn`: requests would be signed with the server's own "
            f"keys, and at an endpoint that lets headers be added afterwards, everybody who may write one table could "
            f"have any object copied into it (x-amz-copy-source). Set `role_arn`; or, if the storage refuses "
            f"x-amz- headers that are not signed, `unsafe_sign_with_server_keys`"
        )
    region = (
        option(options, "region", "default_region")
        or os.environ.get("AWS_REGION")
        or os.environ.get("AWS_DEFAULT_REGION")
        or "us-east-1"
    )
    sts = Sts(outside, clock, region=region, endpoint=given.sts_endpoint)
    own = OwnKeys(options, outside, clock, sts)
    config = {"client.region": region, "s3.region": region}
    if url is not None:
        # ClickHouse takes the endpoint for a folder only with a slash at its end; the others accept it.
        config |= {
            "s3.endpoint": f"{url.rstrip('/')}/",
            "s3.path-style-access": "false" if endpoint.virtual else "true",
        }
    provider = (
        None
        if given.role_arn is None
        else S3Provider(
            own,
            sts,
            role_arn=given.role_arn,
            duration_s=given.duration_s,
            external_id=given.external_id,
            kms_keys=given.kms_keys,
        )
    )
    signer = S3Signer(clock, region=region, endpoint=endpoint) if given.remote_signing else None
    root, alone = place.url.rstrip("/"), Checked(clock)
    return Vendor(root, at.bucket, at.prefix, config, provider, credentials, signer, own, alone)
