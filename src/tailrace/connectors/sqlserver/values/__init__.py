"""How SQL Server's values are shown: declarations, types, defaults, texts."""
