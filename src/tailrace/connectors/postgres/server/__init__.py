"""Sessions with a PostgreSQL server."""
