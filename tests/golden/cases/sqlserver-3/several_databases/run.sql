INSERT INTO orders VALUES (5, N'a');
USE golden2;
INSERT INTO customers (first_name, last_name, email) VALUES ('john', 'doe', 'john.doe@example.org');
USE golden;
UPDATE orders SET note = N'z' WHERE id = 5;
