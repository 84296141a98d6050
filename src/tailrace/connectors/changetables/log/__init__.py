"""Change tables from the server to records: sessions, reading, numbering, merging, and tasks."""
