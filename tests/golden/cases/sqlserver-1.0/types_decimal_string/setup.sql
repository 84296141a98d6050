CREATE TABLE numbers (id int NOT NULL PRIMARY KEY, b bit, ti tinyint, si smallint, i int, bi bigint, d1 decimal(5, 2), d2 numeric(18, 0), d3 decimal(38, 10), m money, sm smallmoney, f float, r real);
INSERT INTO numbers VALUES (1, 1, 255, -32768, -2147483648, 9223372036854775807, -123.45, 999999999999999999, 1234567890123456789012345678.0123456789, 922337203685477.5807, -214748.3648, 1.25e-10, 3.5);
INSERT INTO numbers (id) VALUES (2);
INSERT INTO numbers VALUES (3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
EXEC sys.sp_cdc_enable_db;
EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'numbers', @role_name = NULL, @supports_net_changes = 0;
