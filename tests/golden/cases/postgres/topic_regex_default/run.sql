UPDATE shard_1 SET id = 2;
INSERT INTO other VALUES (1, 'o');
DELETE FROM shard_22;
