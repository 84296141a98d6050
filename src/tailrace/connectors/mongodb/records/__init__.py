"""From the changes of a batch to records: segments, the tasks that read them, and what an event shows of a document."""
