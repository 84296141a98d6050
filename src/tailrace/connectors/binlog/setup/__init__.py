"""Checks of a server before a run."""
