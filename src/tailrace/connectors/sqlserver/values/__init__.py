"""SQL Server's values in events: declarations, types, defaults, texts."""
