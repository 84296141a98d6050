"""Schema registries: they register the schemas of records and return the ids that stand for them. Worker."""
