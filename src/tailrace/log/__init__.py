"""The log engine: what every connector that reads a database's log shares. It knows no connector."""
