"""Sessions with Db2: the driver, the catalog, rows as texts, and the state of capture."""
