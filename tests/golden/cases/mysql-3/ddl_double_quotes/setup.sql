create table z (id int primary key);
