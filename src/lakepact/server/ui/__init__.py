"""The web page at `/ui`: what is in the catalog, what happens to it, and how the server is.

html.py       HTML that escapes by construction; parts.py, charts.py, graphs.py, layout.py: what pages are made of
window.py     a warehouse as whoever asks may see it, and windows.py the way to one: all that a page gets of a catalog
lists.py, search.py, timeline.py, activity.py, runs.py, lineage.py
              what it takes to answer; told.py limits what receipts and reports tell to what may be seen
*_page.py     pages, each a function from a request to a `Page`; *_parts.py, transaction_lists.py: what is on them
site.py       the routes

No page needs a script, nothing comes from elsewhere, and the content policy says so. A page that cannot be shown is a
page that says why.
"""

from lakepact.server.ui.site import Site

__all__ = ["Site"]
