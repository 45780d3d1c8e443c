"""The gRPC interface as Python code, generated from `proto/lakepact/v1` by `make proto`. Needs the extra `grpc`.

`transactions_pb2` has the messages, `transactions_pb2_grpc` the client's stub. docs/grpc.md shows how they are used.
"""
