"""The demo: a private PostgreSQL, a workload and its change events on the terminal. `main` runs it."""

from tailrace.demo.run import main

__all__ = ["main"]
