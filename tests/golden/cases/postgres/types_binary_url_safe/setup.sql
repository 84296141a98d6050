CREATE TABLE b (id INT PRIMARY KEY, b BYTEA, nn BYTEA NOT NULL DEFAULT '\xfbff', a BYTEA[], bits BIT(9), v VARBIT);
INSERT INTO b VALUES (1, '\x00fffefbef3e3f', DEFAULT, '{"\\xfbff","\\x"}', B'100000001', B'11');
