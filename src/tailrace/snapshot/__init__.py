"""Snapshots as all connectors share them: plans of chunks, signals and their channels, windows beside the log."""
