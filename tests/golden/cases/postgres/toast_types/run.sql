UPDATE big SET n = 2;
UPDATE big SET id = 3;
