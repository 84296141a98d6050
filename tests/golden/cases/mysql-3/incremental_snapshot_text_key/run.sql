insert into signals values ('s1', 'execute-snapshot', '{"data-collections": ["golden.a"], "type": "incremental", "additional-conditions": [{"data-collection": "golden.a", "filter": "id > 2"}]}');
--@ settle 2
insert into signals values ('s2', 'execute-snapshot', '{"data-collections": ["golden.a"], "type": "incremental", "surrogate-key": "u"}');
--@ settle 2
insert into signals values ('s3', 'execute-snapshot', '{"data-collections": ["golden.b", "golden.a"], "type": "incremental"}');
--@ settle 2
insert into signals values ('s4', 'log', '{"message": "hello {}"}');
insert into signals values ('s5', 'execute-snapshot', '{"data-collections": ["golden.nope"], "type": "incremental"}');
--@ settle 2
insert into a values (6, 'six', 'l');
delete from signals where id = 's1';
update signals set type = 'x' where id = 's2';
--@ settle 3
insert into a values (7, 'seven', 'k');
