"""Places to keep cells and blobs. `open_store` is the door: one URL, one store."""
