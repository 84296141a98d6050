CREATE TABLE bytes (id int NOT NULL PRIMARY KEY, b binary(4), vb varbinary(20), vm varbinary(max), i image, rv rowversion);
EXEC sys.sp_cdc_enable_db;
EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'bytes', @role_name = NULL, @supports_net_changes = 0;
