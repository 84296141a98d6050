"""The SQL Server connector: change tables (Change Data Capture) through Microsoft's driver for Python."""
