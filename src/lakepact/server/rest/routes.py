"""Every REST endpoint: method, path, operation, handler."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from lakepact.catalog import Catalog
from lakepact.catalog.trail import Trail
from lakepact.server.rest.audit import AuditHandlers
from lakepact.server.rest.config import ConfigHandler
from lakepact.server.rest.credentials import CredentialHandlers
from lakepact.server.rest.delta import DeltaHandlers, Mirror
from lakepact.server.rest.door import Door
from lakepact.server.rest.dropped import DroppedHandlers
from lakepact.server.rest.governance import GovernanceHandlers
from lakepact.server.rest.grants import GrantHandlers
from lakepact.server.rest.namespaces import NamespaceHandlers
from lakepact.server.rest.tables import TableHandlers
from lakepact.server.rest.transactions import TransactionHandlers
from lakepact.server.rest.views import ViewHandlers
from lakepact.server.routing import PREFIX, Route
from lakepact.server.vending.delegation import Delegation

_TRANSACTIONS: Final = "/v1/{prefix}/transactions"
_TRANSACTION: Final = _TRANSACTIONS + "/{transaction}"
_COMMIT_MANY: Final = _TRANSACTIONS + "/commit"
_GRANTS: Final = "/v1/{prefix}/grants"
_NAMESPACES: Final = "/v1/{prefix}/namespaces"
_NAMESPACE: Final = _NAMESPACES + "/{namespace}"
_TABLES: Final = _NAMESPACE + "/tables"
_TABLE: Final = _TABLES + "/{table}"
_VIEWS: Final = _NAMESPACE + "/views"
_VIEW: Final = _VIEWS + "/{view}"
_DELTA_TABLES: Final = _NAMESPACE + "/delta-tables"
_DELTA_TABLE: Final = _DELTA_TABLES + "/{table}"

_READS: Final = frozenset({"batchLoadTables", "checkGrant", "reportMetrics", "signRequest"})
"""Operations with POST that change nothing of the catalog."""


def rest_routes(
    catalogs: Mapping[str, Catalog],
    default_warehouse: str,
    *,
    idempotency_lifetime_s: int = 3_600,
    multi_table_transactions: bool = True,
    mirror: Mirror | None = None,
    delegation: Delegation | None = None,
    trail: Trail | None = None,
) -> list[Route]:
    door = Door(catalogs, default_warehouse, trail=trail)
    config = ConfigHandler(door, idempotency_lifetime_s=idempotency_lifetime_s)
    delegation = delegation or Delegation({})
    namespaces, tables, views = NamespaceHandlers(door), TableHandlers(door, delegation), ViewHandlers(door)
    credentials = CredentialHandlers(door, delegation)
    delta, transactions = DeltaHandlers(door, mirror), TransactionHandlers(door)
    dropped = DroppedHandlers(door)
    grants, governance, audit = GrantHandlers(door), GovernanceHandlers(door), AuditHandlers(door)
    routes = [
        Route("GET", "/v1/config", "getConfig", config.show),
        Route("GET", _NAMESPACES, "listNamespaces", namespaces.list),
        Route("POST", _NAMESPACES, "createNamespace", namespaces.create),
        Route("GET", _NAMESPACE, "loadNamespaceMetadata", namespaces.load),
        Route("HEAD", _NAMESPACE, "namespaceExists", namespaces.exists),
        Route("DELETE", _NAMESPACE, "dropNamespace", namespaces.drop),
        Route("POST", _NAMESPACE + "/properties", "updateProperties", namespaces.update_properties),
        Route("GET", _TABLES, "listTables", tables.list),
        Route("POST", _TABLES, "createTable", tables.create),
        Route("GET", _TABLE, "loadTable", tables.load),
        Route("HEAD", _TABLE, "tableExists", tables.exists),
        Route("POST", _TABLE, "updateTable", tables.commit),
        Route("DELETE", _TABLE, "dropTable", tables.drop),
        Route("POST", _TABLE + "/metrics", "reportMetrics", tables.report_metrics),
        Route("GET", _TABLE + "/credentials", "loadCredentials", credentials.load),
        Route("POST", _TABLE + "/sign", "signRequest", credentials.sign),
        Route("POST", _TABLE + "/unregister", "unregisterTable", tables.unregister),
        Route("POST", _NAMESPACE + "/register", "registerTable", tables.register),
        Route("POST", "/v1/{prefix}/tables/rename", "renameTable", tables.rename),
        Route("POST", "/v1/{prefix}/tables/undrop", "undropTable", dropped.undrop),
        Route("GET", "/v1/{prefix}/dropped", "listDropped", dropped.list),
        Route("GET", "/v1/{prefix}/reachable", "listReachable", dropped.reachable),
        Route("GET", "/v1/{prefix}/reachable/{table}", "listReachableFiles", dropped.reachable_files),
        Route("GET", _VIEWS, "listViews", views.list),
        Route("POST", _VIEWS, "createView", views.create),
        Route("GET", _VIEW, "loadView", views.load),
        Route("HEAD", _VIEW, "viewExists", views.exists),
        Route("POST", _VIEW, "replaceView", views.commit),
        Route("DELETE", _VIEW, "dropView", views.drop),
        Route("POST", _NAMESPACE + "/register-view", "registerView", views.register),
        Route("POST", "/v1/{prefix}/views/rename", "renameView", views.rename),
        Route("GET", _DELTA_TABLES, "listDeltaTables", delta.list),
        Route("POST", _DELTA_TABLES, "createDeltaTable", delta.create),
        Route("GET", _DELTA_TABLE, "loadDeltaTable", delta.load),
        Route("HEAD", _DELTA_TABLE, "deltaTableExists", delta.exists),
        Route("POST", _DELTA_TABLE, "commitDeltaTable", delta.commit),
        Route("DELETE", _DELTA_TABLE, "dropDeltaTable", delta.drop),
        Route("GET", _DELTA_TABLE + "/history", "loadDeltaHistory", delta.history),
        Route("POST", _DELTA_TABLE + "/import", "importDeltaTable", delta.import_),
        Route("GET", _DELTA_TABLE + "/verify", "verifyDeltaTable", delta.verify),
        Route("POST", "/v1/{prefix}/delta-tables/mirror", "mirrorDeltaTables", delta.mirror),
        Route("POST", "/v1/{prefix}/delta-tables/rename", "renameDeltaTable", delta.rename),
        Route("POST", _COMMIT_MANY, "commitTransaction", tables.commit_transaction),
        Route("POST", "/v1/{prefix}/tables/batch-load", "batchLoadTables", tables.load_many),
        Route("POST", _TRANSACTIONS, "beginTransaction", transactions.begin),
        Route("GET", _TRANSACTIONS, "listTransactions", transactions.list),
        Route("GET", _TRANSACTION, "loadTransaction", transactions.show),
        Route("POST", _TRANSACTION + "/prepare", "prepareTransaction", transactions.prepare),
        Route("POST", _TRANSACTION + "/commit", "publishTransaction", transactions.commit),
        Route("POST", _TRANSACTION + "/abort", "abortTransaction", transactions.abort),
        Route("POST", _TRANSACTION + "/renew", "renewTransaction", transactions.renew),
        Route("PUT", _TRANSACTION + "/report", "reportRun", transactions.report),
        Route("GET", _TRANSACTION + "/state/{name}", "loadStateInTransaction", transactions.load_state_in),
        Route("PUT", _TRANSACTION + "/state/{name}", "putState", transactions.put_state),
        Route("GET", "/v1/{prefix}/state/{name}", "loadState", transactions.load_state),
        Route("GET", _GRANTS, "listGrants", grants.list),
        Route("POST", _GRANTS, "addGrant", grants.add),
        Route("POST", _GRANTS + "/remove", "removeGrant", grants.remove),
        Route("POST", _GRANTS + "/check", "checkGrant", grants.check),
        Route("GET", _TABLE + "/governance", "loadGovernance", governance.load),
        Route("PUT", _TABLE + "/governance", "putGovernance", governance.put),
        Route("GET", "/v1/{prefix}/audit", "listAudit", audit.list),
    ]
    routes = [
        replace(route, handler=door.with_prefix(route.handler)) if _needs_prefix(route) else route for route in routes
    ]
    config.endpoints = [
        f"{route.method} {route.template}"
        for route in routes
        if multi_table_transactions or route.template != _COMMIT_MANY
    ]
    config.only_some = {
        f"GET {_TABLE}/credentials": delegation.vends,
        f"POST {_TABLE}/sign": delegation.signs,
    }
    return routes


def _needs_prefix(route: Route) -> bool:
    """Whether the route changes something other than a transaction, whose API is defined without a prefix too."""
    changes = route.method not in ("GET", "HEAD") and route.operation not in _READS
    return changes and PREFIX in route.template and not route.template.startswith(_TRANSACTIONS)
