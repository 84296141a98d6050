INSERT INTO signals VALUES ('snap-1', 'execute-snapshot', N'{"data-collections": ["golden.dbo.customers"], "type": "incremental"}');
--@ settle 3
INSERT INTO customers (first_name, last_name, email) VALUES ('john', 'doe', 'john.doe@example.org');
