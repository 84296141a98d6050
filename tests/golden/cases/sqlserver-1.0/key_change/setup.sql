CREATE TABLE t (a int NOT NULL, b nvarchar(10) NOT NULL, v varchar(20), CONSTRAINT pk_t PRIMARY KEY (a, b));
INSERT INTO t VALUES (1, N'x', 'one'), (2, N'y', 'two');
EXEC sys.sp_cdc_enable_db;
EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N't', @role_name = NULL, @supports_net_changes = 0;
