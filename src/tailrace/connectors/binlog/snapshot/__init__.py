"""Snapshots: a consistent point, chunks by primary key, and rows in the text protocol. Planner and workers."""
