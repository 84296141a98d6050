"""The change tables from the server to the tasks: sessions, reading, numbering, merging, and their records."""
