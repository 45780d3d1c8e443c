from tests.conformance.cells.postgres_server import running_postgres

__all__ = ["running_postgres"]
