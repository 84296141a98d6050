create table m (id int primary key, e enum('aaa','b') not null, e2 enum('x','long label') default 'x', s set('one','two','three'), s2 set('q') not null, c char(3), t text, b varchar(9) charset binary, v varbinary(5), j json);
insert into m values (1,'aaa','long label','one,three','q','c','t','b','v','{}');
