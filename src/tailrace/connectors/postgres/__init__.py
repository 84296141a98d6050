"""The PostgreSQL connector: a replication slot, and the catalog beside it, as Debezium events."""
