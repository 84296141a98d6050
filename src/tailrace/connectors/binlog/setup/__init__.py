"""What the server needs before a run."""
