CREATE TABLE nokey (a int, b varchar(10));
CREATE TABLE uniquekey (a int NOT NULL, b varchar(10), CONSTRAINT uq UNIQUE (a));
INSERT INTO nokey VALUES (1, 'x'); INSERT INTO uniquekey VALUES (1, 'x');
EXEC sys.sp_cdc_enable_db;
EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'nokey', @role_name = NULL, @supports_net_changes = 0;
EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'uniquekey', @role_name = NULL, @supports_net_changes = 0;
