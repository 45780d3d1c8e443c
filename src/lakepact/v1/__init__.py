"""The gRPC interface as Python code, generated from `proto/lakepact/v1` by `make proto`. Needs the extra `grpc`.

    from lakepact.v1 import transactions_pb2, transactions_pb2_grpc
"""
