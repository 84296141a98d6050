"""Tables of Apache Iceberg, by Iceberg's own library: Spark reads and writes the files. Driver."""
