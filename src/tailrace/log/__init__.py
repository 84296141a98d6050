"""The log engine: how a query is planned batch after batch over any database's log. It knows no database."""
