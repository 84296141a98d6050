"""Definitions of tables: what the log's table maps and statements say of them."""
