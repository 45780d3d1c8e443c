"""The catalog's transactions over gRPC. Needs the extra `grpc`; nothing else in the server imports this package.

requests     what a message asks for, checked once, as the catalog's values
answers      records as messages
status       errors as statuses, with details
service      the six calls
server       sockets, health, reflection, and what every call pays for
"""
