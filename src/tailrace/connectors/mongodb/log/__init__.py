"""The oplog or a change stream: positions, the feed, what of it is captured and can be relied on."""
