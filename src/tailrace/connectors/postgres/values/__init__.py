"""PostgreSQL's values in events: types, defaults, texts. Planner and worker."""
