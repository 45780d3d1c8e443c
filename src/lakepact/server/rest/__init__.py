"""The Iceberg REST protocol, and Lakepact's own endpoints beside it.

door          which warehouse, which names, under which key, from whom
answers       bodies and headers about tables and views
errors        errors on the wire
config        what this server offers
namespaces, tables, views, transactions, audit
              the handlers
routes        all of it as a list
"""

from lakepact.server.rest.errors import error_answer
from lakepact.server.rest.routes import rest_routes

__all__ = ["error_answer", "rest_routes"]
