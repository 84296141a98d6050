"""The transform that replaces a change event by the row after the change."""
