"""The server: one process, or several behind one socket, that speak HTTP for the catalog.

http.py        requests and responses as plain values; no framework
routing.py     from a raw path to the handler of an operation
asgi.py        the ASGI callable: bodies in, answers out, one log line a request
metrics.py     what is counted, with closed label sets
health.py      /livez, /readyz, /health, /metrics
openapi/       /openapi.json, /docs: what is served, in words
logs.py        how log lines look
log_writer.py  writes them from a thread, so that logging never blocks
watchdog.py    ends a process whose event loop is stuck
connections.py how many connections a process may have
app.py         the only place that wires all of it together
run.py         sockets, signals, uvicorn
worker.py      one of several processes behind one socket
supervisor.py  starts them, and starts again those that die

What the API means is in `lakepact.catalog`; how it is said in HTTP is in `lakepact.server.rest`.
"""
