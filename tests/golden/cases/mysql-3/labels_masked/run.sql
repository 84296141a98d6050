insert into m values (2,'b',null,null,'','cc','tt',null,null,null);
update m set e='aaa', s='two' where id=2;
