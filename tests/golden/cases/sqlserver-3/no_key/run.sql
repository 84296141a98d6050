INSERT INTO nokey VALUES (1, 'x'), (NULL, NULL);
UPDATE nokey SET b = 'y' WHERE a = 1;
DELETE FROM nokey WHERE a IS NULL;
UPDATE uniquekey SET b = 'z' WHERE a = 1;
UPDATE uniquekey SET a = 2;
DELETE FROM uniquekey;
