"""Sessions with a PostgreSQL server, and the meaning of its errors. Planner, worker and driver."""
