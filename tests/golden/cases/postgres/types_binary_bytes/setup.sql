CREATE TABLE b (k BYTEA PRIMARY KEY, b BYTEA, nn BYTEA NOT NULL DEFAULT '\xfbff', e BYTEA DEFAULT 'text', a BYTEA[], bits BIT(9) NOT NULL DEFAULT B'100000001', v VARBIT(70), b1 BIT NOT NULL DEFAULT B'1');
INSERT INTO b VALUES ('\x01', '\x00fffefbef3e3f', DEFAULT, 'x', '{"\\xfbff","\\x"}', B'100000001', repeat('1', 70)::varbit);
