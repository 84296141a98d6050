"""The connectors, one package for each database; their registry; and what descriptors, checks and status share."""
