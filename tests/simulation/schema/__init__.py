"""Random alterations and writes on a real PostgreSQL; the pipeline's copies are compared with its tables at the end."""
