INSERT INTO e VALUES (2, 'q"q', DEFAULT, '{HIGH}');
UPDATE k SET l = 'HIGH';
--@ settle 1
ALTER TYPE small ADD VALUE 'last';
INSERT INTO e (id, s) VALUES (3, 'last');
DELETE FROM k;
