UPDATE orders SET note = N'second' WHERE id = 1;
ALTER TABLE lines ADD price decimal(8, 2) NULL;
EXEC sys.sp_cdc_enable_table @source_schema = N'dbo', @source_name = N'lines', @role_name = NULL, @supports_net_changes = 0, @capture_instance = N'dbo_lines_2';
--@ sleep 2
INSERT INTO lines VALUES (1, 3, 7, 9.50);
UPDATE orders SET note = N'third' WHERE id = 1;
