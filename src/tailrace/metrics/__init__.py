"""Numbers that planner and tasks count, and their way to the process that shows them. No I/O but files of this host."""
