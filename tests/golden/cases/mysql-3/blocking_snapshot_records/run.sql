insert into a values (4, 'four');
insert into signals values ('s7', 'execute-snapshot', '{"data-collections": ["golden.b", "d2.c", "golden.a"], "type": "blocking"}');
--@ settle 3
insert into a values (7, 'seven');
