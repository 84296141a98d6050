"""Schema registries: where the schemas of records are registered, and the ids that stand for them. Worker."""
