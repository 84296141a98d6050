UPDATE a SET hidden = 'i';
UPDATE a SET v = v;
UPDATE a SET v = 'y';
UPDATE a SET id = 2, hidden = 'z';
UPDATE b SET v = v;
DELETE FROM a;
