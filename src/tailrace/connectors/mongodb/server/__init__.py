"""Sessions with a MongoDB server: clients, cursors, routers, failures."""
