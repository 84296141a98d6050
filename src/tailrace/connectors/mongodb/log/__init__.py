"""The log of MongoDB, an oplog or a change stream: positions, the feed, captured collections, and majority reads."""
