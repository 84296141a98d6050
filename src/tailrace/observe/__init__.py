"""Observation of a running pipeline: its status, and which error an exception out of Spark stands for. Driver."""
