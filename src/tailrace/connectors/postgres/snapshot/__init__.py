"""Initial, blocking and incremental snapshots, and the signals that ask for them. Planner and worker."""
