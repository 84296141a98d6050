"""Snapshots, shared by all connectors: plans of chunks, signals and their channels, windows beside the log."""
