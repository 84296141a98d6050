"""Documents instead of events: Debezium's ExtractNewDocumentState, and whole documents rebuilt from changes."""
