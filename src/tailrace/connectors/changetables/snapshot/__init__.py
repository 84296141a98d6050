"""Initial, blocking and incremental snapshots, and the signals that start them."""
