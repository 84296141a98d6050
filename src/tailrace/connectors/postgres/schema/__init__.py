"""Schemas of the captured tables, now and at each place of the log. Planner and driver."""
