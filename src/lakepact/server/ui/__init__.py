"""The web page at `/ui`: what is in the catalog, what happens to it, and how the server is.

html.py       HTML that escapes by construction; parts.py, charts.py, graphs.py, layout.py: what pages are made of
data.py       `Windows`: the one way from a page to the catalogs; timeline.py, activity.py, runs.py, lineage.py: what it
              takes to answer
*_page.py     pages, each a function from a request to a `Page`
forms.py      forms that change something, and who may send them
site.py       the routes

No page needs a script, nothing comes from elsewhere, and the content policy says so. A page that cannot be shown is a
page that says why.
"""

from lakepact.server.ui.site import Site

__all__ = ["Site"]
