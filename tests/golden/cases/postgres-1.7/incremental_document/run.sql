INSERT INTO myschema.debezium_signal (id, type, data) VALUES('ad-hoc-1', 'execute-snapshot', '{"data-collections": ["schema1.table1", "schema2.table2"],"type":"INCREMENTAL"}');
--@ settle 2
INSERT INTO fin VALUES (1);
