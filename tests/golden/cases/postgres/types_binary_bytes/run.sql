INSERT INTO b VALUES ('\x02', '', '\x', DEFAULT, '{NULL}', B'000000000', B'01');
UPDATE b SET b = '\xfa' WHERE k = '\x01';
UPDATE b SET k = '\x03', v = B'' WHERE k = '\x02';
DELETE FROM b WHERE k = '\x01';
