INSERT INTO customers (first_name, last_name, email) VALUES ('a', 'b', 'before@alter');
ALTER TABLE customers ADD phone varchar(20) NULL;
INSERT INTO customers (first_name, last_name, email, phone) VALUES ('c', 'd', 'not@captured', '123');
EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'customers', @role_name = NULL, @supports_net_changes = 0, @capture_instance = N'dbo_customers_2';
--@ sleep 2
INSERT INTO customers (first_name, last_name, email, phone) VALUES ('e', 'f', 'with@phone', '456');
UPDATE customers SET phone = '789' WHERE id = 1001;
