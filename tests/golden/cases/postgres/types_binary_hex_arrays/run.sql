INSERT INTO b VALUES (2, '', '\x', '{NULL}', NULL, NULL);
UPDATE b SET b = '\xfa' WHERE id = 1;
DELETE FROM b WHERE id = 1;
