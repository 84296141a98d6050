"""The binary log: its events as a replica reads them, rows as columns, positions. Planner and tasks."""
