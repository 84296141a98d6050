"""Checks of the server's prerequisites for capture."""
