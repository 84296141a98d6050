"""The log from the server to the tasks: reading, indexing, the spool, segments, and their records."""
