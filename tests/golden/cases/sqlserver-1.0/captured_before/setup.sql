CREATE TABLE orders (id int NOT NULL PRIMARY KEY, note nvarchar(20));
CREATE TABLE nullablekey (a int NULL, b int NULL, CONSTRAINT uq UNIQUE (a));
EXEC sys.sp_cdc_enable_db;
EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'orders', @role_name = NULL, @supports_net_changes = 0;
EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'nullablekey', @role_name = NULL, @supports_net_changes = 0;
INSERT INTO orders VALUES (1, N'first');
INSERT INTO nullablekey VALUES (1, 2);
WAITFOR DELAY '00:00:01';
