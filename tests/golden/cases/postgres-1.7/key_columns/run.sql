UPDATE nokey SET c = 'z';
UPDATE nokey SET b = 'moved';
DELETE FROM nokey;
UPDATE t SET v = 'y' WHERE id = 1;
UPDATE t SET id = 3 WHERE id = 2;
INSERT INTO u VALUES (1, 'u');
UPDATE u SET v = 'w';
DELETE FROM withkey;
