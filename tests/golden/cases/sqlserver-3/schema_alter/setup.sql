CREATE TABLE orders (id int NOT NULL PRIMARY KEY, note nvarchar(20));
CREATE TABLE lines (order_id int NOT NULL, line int NOT NULL, qty int, PRIMARY KEY (order_id, line));
INSERT INTO orders VALUES (1, N'first');
INSERT INTO lines VALUES (1, 1, 5), (1, 2, 6);
EXEC sys.sp_cdc_enable_db;
EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'orders', @role_name = NULL, @supports_net_changes = 0;
EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'lines', @role_name = NULL, @supports_net_changes = 0;
