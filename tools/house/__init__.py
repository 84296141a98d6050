"""Facts about the sources, to decide on the division into modules: `make house`."""
