"""The lineage of a table as a picture: what it was made of, and what is made of it."""

from __future__ import annotations

from typing import Final

from lakepact.catalog.pointers import Kind
from lakepact.iceberg.requests import Identifier
from lakepact.server.http import Request
from lakepact.server.ui.graphs import Node, columns_of, picture
from lakepact.server.ui.html import Markup, join, tag
from lakepact.server.ui.layout import Page
from lakepact.server.ui.lineage import Lineage, Neighbourhood
from lakepact.server.ui.links import Links
from lakepact.server.ui.parts import card, empty
from lakepact.server.ui.table_page import TablePages

_KINDS: Final = {Kind.TABLE: "Iceberg table", Kind.DELTA: "Delta table", Kind.VIEW: "view"}


class LineagePages:
    def __init__(self, links: Links, tables: TablePages, lineage: Lineage) -> None:
        self._links = links
        self._tables = tables
        self._lineage = lineage

    async def lineage(self, request: Request) -> Page:
        window, pointer = await self._tables.asked(request)
        around = await self._lineage.around(window, pointer)
        body = (
            card("Lineage", self._picture(window.warehouse, around))
            if around.edges
            else empty(
                "No lineage known",
                "Pipelines record their inputs, and the server verifies them. Inputs that a writer only declared are "
                "in the timeline. Nothing verified is known for this table"
                + ("." if window.whole else ", as far as you may read what it was made of and what is made of it."),
            )
        )
        return await self._tables.page(window, pointer, "lineage", body)

    def _picture(self, warehouse: str, around: Neighbourhood) -> Markup:
        def node(full_name: str) -> Node:
            kind = around.kinds.get(full_name)
            *namespace, last = full_name.split(".")
            known = kind is not None and bool(namespace)
            return Node(
                full_name,
                full_name,
                _KINDS[kind] if kind is not None else "not in this catalog",
                self._links.table(warehouse, Identifier(tuple(namespace), last), "lineage") if known else None,
                "center" if full_name == around.center else "" if known else "outside",
            )

        columns = columns_of([node(one) for one in around.tables], around.edges)
        return join(
            tag(
                "p",
                "What it was made of is on the left, what is made of it on the right. Follow a box to go there.",
                class_="muted",
            ),
            picture(columns, around.edges, label=f"Lineage of {around.center}"),
            tag("p", "There is more than fits in here.", class_="muted end") if around.cut else None,
        )
