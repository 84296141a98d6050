"""Db2's values in events: declarations, types, defaults."""
