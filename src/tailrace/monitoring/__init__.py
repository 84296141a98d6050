"""Observation of a running pipeline: its status, and the error behind an exception of Spark. Driver."""
