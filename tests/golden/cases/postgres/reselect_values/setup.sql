CREATE TABLE t (id INT PRIMARY KEY, n INT, long_text TEXT, masked TEXT, hashed TEXT, dflt TEXT DEFAULT 'dd', maybe TEXT, arr TEXT[], fixed VARCHAR(6000) NOT NULL);
ALTER TABLE t ALTER long_text SET STORAGE EXTERNAL, ALTER masked SET STORAGE EXTERNAL, ALTER hashed SET STORAGE EXTERNAL, ALTER arr SET STORAGE EXTERNAL, ALTER fixed SET STORAGE EXTERNAL;
CREATE TABLE nokey (n INT, name TEXT, long_text TEXT);
CREATE TABLE keyed (id INT PRIMARY KEY, name TEXT, long_text TEXT);
ALTER TABLE keyed ALTER long_text SET STORAGE EXTERNAL;
INSERT INTO t VALUES (1, 1, repeat('long ', 1000), repeat('m', 3000), repeat('h', 3000), NULL, NULL, array[repeat('a',3000),'b'], repeat('f',3000));
INSERT INTO nokey VALUES (1, 'a', 'first'), (2, 'b', 'second');
INSERT INTO keyed VALUES (1, 'a', repeat('long ', 1000));
