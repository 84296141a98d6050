create table customers(id int primary key, name text);
