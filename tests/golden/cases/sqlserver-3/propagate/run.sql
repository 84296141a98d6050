INSERT INTO numbers (id) VALUES (1);
INSERT INTO texts (id) VALUES (1);
INSERT INTO times (id) VALUES (1);
