"""Messages out of rows: the event router of an outbox, and logical messages."""
