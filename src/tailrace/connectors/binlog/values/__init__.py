"""Columns and values of MySQL and MariaDB: their schemas, conversions and defaults."""
