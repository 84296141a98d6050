CREATE TABLE numbers (id int NOT NULL PRIMARY KEY, b bit, ti tinyint, si smallint, i int, bi bigint, d1 decimal(5, 2), d2 numeric(18, 0), d3 decimal(38, 10), m money, sm smallmoney, f float, r real);
CREATE TABLE texts (id int NOT NULL PRIMARY KEY, c char(5), vc varchar(20), vm varchar(max), t text, nc nchar(5), nvc nvarchar(20), nvm nvarchar(max), nt ntext, x xml, u uniqueidentifier);
CREATE TABLE bytes (id int NOT NULL PRIMARY KEY, b binary(4), vb varbinary(20), vm varbinary(max), i image, rv rowversion);
CREATE TABLE times (id int NOT NULL PRIMARY KEY, d date, dt datetime, sdt smalldatetime, dt0 datetime2(0), dt3 datetime2(3), dt6 datetime2(6), dt7 datetime2(7), t0 time(0), t3 time(3), t6 time(6), t7 time(7), dto0 datetimeoffset(0), dto7 datetimeoffset(7));
EXEC sys.sp_cdc_enable_db;
EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'numbers', @role_name = NULL, @supports_net_changes = 0;
EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'texts', @role_name = NULL, @supports_net_changes = 0;
EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'bytes', @role_name = NULL, @supports_net_changes = 0;
EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'times', @role_name = NULL, @supports_net_changes = 0;
