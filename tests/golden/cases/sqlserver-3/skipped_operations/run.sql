INSERT INTO customers (first_name, last_name, email) VALUES ('john', 'doe', 'john.doe@example.org');
UPDATE customers SET first_name = 'Anne Marie' WHERE id = 1004;
DELETE FROM customers WHERE id = 1005;
UPDATE customers SET email = 'anne@noanswer.org' WHERE id = 1004;
