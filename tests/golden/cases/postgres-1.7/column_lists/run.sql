UPDATE a SET hidden = 'i' WHERE id = 1;
UPDATE a SET id = 2, v = 'y';
DELETE FROM a;
