"""The Db2 connector: change tables of SQL replication, read through IBM's driver."""
