"""The kit for logs of rows: runs of messages cut into segments so that order holds, and segments made into records."""
