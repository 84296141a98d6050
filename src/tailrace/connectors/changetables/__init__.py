"""The reader of databases whose log arrives as change tables: SQL Server's CDC, Db2's ASN capture."""
