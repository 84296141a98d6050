INSERT INTO dom VALUES (2, 'one', 'two', 1.25, 2.5, 'Ci', '{a,b}', '10:11:12.345', '2020-01-01 00:00:00+02', '{"a": 1}', '\x01', 'ab', 12.34);
INSERT INTO dom (id, b) VALUES (3, DEFAULT);
UPDATE dom SET id = 4 WHERE id = 3;
