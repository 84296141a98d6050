"""The PostgreSQL connector: the log of a replication slot, and snapshots of tables, as Debezium events."""
