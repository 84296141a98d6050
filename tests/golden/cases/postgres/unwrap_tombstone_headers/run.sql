INSERT INTO customers VALUES (1,'a');
UPDATE customers SET id=2 WHERE id=1;
DELETE FROM customers;
--@ wait 4
--@ settle 3
