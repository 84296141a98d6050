"""The MongoDB connector: the oplog of a replica set, or change streams, as Debezium events."""
