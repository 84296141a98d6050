CREATE SCHEMA Sales;
CREATE TABLE Sales.[Order Lines] ([Order Id] int NOT NULL PRIMARY KEY, [Náïve] nvarchar(10), [select] int, [dash-ed] int, [1st] int);
CREATE TABLE UPPER (Id int NOT NULL PRIMARY KEY, CamelCase int);
INSERT INTO Sales.[Order Lines] VALUES (1, N'a', 1, 1, 1);
EXEC sys.sp_cdc_enable_db;
EXEC sys.sp_cdc_enable_table @source_schema = N'Sales', @source_name = N'Order Lines', @role_name = NULL, @supports_net_changes = 0;
EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'UPPER', @role_name = NULL, @supports_net_changes = 0;
