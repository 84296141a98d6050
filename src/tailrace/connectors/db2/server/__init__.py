"""Sessions with Db2: the driver, the catalog, rows as texts, and whether capture is at work."""
