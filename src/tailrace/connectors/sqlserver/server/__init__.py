"""Sessions with SQL Server: the driver, its errors, every statement, and the state of capture."""
