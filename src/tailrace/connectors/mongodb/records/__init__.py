"""From the changes of a batch to records: segments, the tasks that read them, and the parts of an event."""
