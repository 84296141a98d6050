"""The databases: a room for each, the registry that finds them, and what their descriptors, checks and status share."""
