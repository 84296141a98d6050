CREATE TABLE times (id int NOT NULL PRIMARY KEY, d date, dt datetime, sdt smalldatetime, dt0 datetime2(0), dt3 datetime2(3), dt6 datetime2(6), dt7 datetime2(7), t0 time(0), t3 time(3), t6 time(6), t7 time(7), dto0 datetimeoffset(0), dto7 datetimeoffset(7));
EXEC sys.sp_cdc_enable_db;
EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'times', @role_name = NULL, @supports_net_changes = 0;
