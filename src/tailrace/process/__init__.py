"""What a process has of its machine: time, threads, waiting and temporary directories. Every process."""
