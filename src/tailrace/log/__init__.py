"""The log engine: how a query reads any database's log and plans its batches. It knows no database."""
