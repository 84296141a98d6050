"""Facts about the sources for who decides what belongs together: `make house`."""
