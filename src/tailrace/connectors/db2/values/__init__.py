"""How Db2's values are shown: declarations, types, defaults."""
