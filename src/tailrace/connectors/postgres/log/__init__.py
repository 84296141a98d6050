"""The log from the server to the tasks: the feed with its gears, indexing, segments, and their records."""
