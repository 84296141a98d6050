"""Documents in the place of events: Debezium's ExtractNewDocumentState, and whole documents out of changes alone."""
