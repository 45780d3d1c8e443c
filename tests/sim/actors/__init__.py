"""Clients with a purpose. Each actor is a coroutine over a `Client`; what must hold of its workload is next to it."""
