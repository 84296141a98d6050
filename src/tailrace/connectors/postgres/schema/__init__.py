"""What the tables are made of, now and at each place of the log."""
