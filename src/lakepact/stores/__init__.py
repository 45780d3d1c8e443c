"""Places to keep cells and blobs. `open_store` is the door: one URL, one store."""

from lakepact.stores.urls import open_blobs, open_documents, open_store

__all__ = ["open_blobs", "open_documents", "open_store"]
