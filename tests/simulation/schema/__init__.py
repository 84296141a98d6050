"""Random alterations and writes on a real PostgreSQL; what is kept of its tables is compared with them at the end."""
