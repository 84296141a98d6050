"""The command `tailrace verify`: whether the tables of the sink `tables` are the source's, and mending what differs."""
