"""Sessions with SQL Server: the driver, its errors, every statement, and whether capture is at work."""
