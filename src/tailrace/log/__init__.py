"""The log engine: reads the log of any database and plans the batches of a query. It knows no database."""
