CREATE TABLE big (id INT PRIMARY KEY, n INT, b BYTEA, ba BYTEA[]);
ALTER TABLE big ALTER b SET STORAGE EXTERNAL, ALTER ba SET STORAGE EXTERNAL;
INSERT INTO big VALUES (1, 1, decode(repeat('ab', 3000), 'hex'), array_fill('\xab'::bytea, ARRAY[900]));
