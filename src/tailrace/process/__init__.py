"""A process's access to its machine: time, threads, waiting and temporary directories. Every process."""
