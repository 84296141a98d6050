"""SQL Server: its change tables (Change Data Capture) through Microsoft's driver for Python."""
