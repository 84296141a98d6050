"""Table formats: the interface, and a module for each format. Driver."""
