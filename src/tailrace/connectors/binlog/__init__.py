"""MySQL and MariaDB: one connector over the binary log, with two dialects."""
