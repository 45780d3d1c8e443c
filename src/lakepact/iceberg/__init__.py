"""Iceberg table and view metadata as plain JSON documents: requirements, updates and a pure fold. No IO, no clock.

A metadata document is the `dict` that `orjson` loads and dumps. It is never decoded into models, so fields that this
release does not know survive every commit. Nothing here changes its input: the fold copies the top level and the lists
it touches, and shares the rest.

    errors        what this package raises
    names         every action, requirement and property by its name
    fields        typed reading of JSON from outside
    types, defaults, columns, schemas, transforms, specs, orders
                  the values inside metadata: checking, comparing, binding
    bodies, parse, requests
                  what clients send, checked once at the edge
    requirements  what must hold before a commit
    draft, update_*, logs, finish, updates
                  the fold over a table's updates
    metadata      reading and creating table metadata
    validate      whether a file from elsewhere is table metadata at all
    views         the same for views
    intent, summary, locations
                  what a commit means to do, what is derived from its result, where the file goes

Time and identity are arguments (`Context`).
"""
