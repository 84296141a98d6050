"""Tables of Apache Iceberg: Iceberg's own library commits, Spark reads and writes the files. Driver."""
