"""The API as it is really served, for people and for programs: `GET /openapi.json` and `GET /docs`.

schemas.py     the documents that go in and out
operations.py  what each operation does, in words
document.py    both, put together along the list of routes
page.py        the page for people; it needs nothing but this server

The list of routes is the only source of what there is. A test fails if a route has no words, or words have no route.
"""

from lakepact.server.openapi.document import document_of, undescribed
from lakepact.server.openapi.page import docs_routes

__all__ = ["docs_routes", "document_of", "undescribed"]
