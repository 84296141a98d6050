"""The start of Spark: the JVM and its jars, its class archive, and the fork server of local sessions. Driver."""
