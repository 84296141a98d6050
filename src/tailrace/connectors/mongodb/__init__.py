"""The MongoDB connector: Debezium events from the oplog of a replica set or from change streams."""
