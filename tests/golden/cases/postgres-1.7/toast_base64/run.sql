UPDATE big SET n = 2;
