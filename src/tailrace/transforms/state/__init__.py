"""The state of a record in the place of the event that tells its change."""
