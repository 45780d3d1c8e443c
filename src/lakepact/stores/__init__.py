"""Places to keep cells and blobs. `open_store` is the door: one URL, one store."""

from lakepact.stores.sql_delta import delta_rows
from lakepact.stores.urls import absent, open_blobs, open_documents, open_store

__all__ = ["absent", "delta_rows", "open_blobs", "open_documents", "open_store"]
