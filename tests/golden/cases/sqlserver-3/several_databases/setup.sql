CREATE TABLE orders (id int NOT NULL PRIMARY KEY, note nvarchar(20));
CREATE TABLE lines (order_id int NOT NULL, line int NOT NULL, qty int, PRIMARY KEY (order_id, line));
INSERT INTO orders VALUES (1, N'first');
INSERT INTO lines VALUES (1, 1, 5), (1, 2, 6);
EXEC sys.sp_cdc_enable_db;
EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'orders', @role_name = NULL, @supports_net_changes = 0;
EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'lines', @role_name = NULL, @supports_net_changes = 0;
CREATE DATABASE golden2;
USE golden2;
CREATE TABLE customers (
  id int IDENTITY(1001, 1) NOT NULL PRIMARY KEY,
  first_name varchar(255) NOT NULL,
  last_name varchar(255) NOT NULL,
  email varchar(255) NOT NULL UNIQUE
);
INSERT INTO customers (first_name, last_name, email) VALUES
  ('Sally', 'Thomas', 'sally.thomas@acme.com'),
  ('George', 'Bailey', 'gbailey@foobar.com'),
  ('Edward', 'Walker', 'ed@walker.com'),
  ('Anne', 'Kretchmar', 'annek@noanswer.org');
EXEC sys.sp_cdc_enable_db;
EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'customers', @role_name = NULL, @supports_net_changes = 0;
USE golden;
