"""How tables are stored: one interface, and a module for each format behind it. Driver."""
