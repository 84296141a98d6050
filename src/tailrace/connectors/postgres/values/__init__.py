"""How PostgreSQL's values are shown: types, defaults, texts."""
