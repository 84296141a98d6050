CREATE TABLE c (id int NOT NULL PRIMARY KEY, a int, twice AS (a * 2), price money);
INSERT INTO c (id, a, price) VALUES (1, 2, 3);
EXEC sys.sp_cdc_enable_db;
EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'c', @role_name = NULL, @supports_net_changes = 0;
