CREATE EXTENSION hstore; CREATE EXTENSION citext; CREATE EXTENSION ltree; CREATE EXTENSION isn;
CREATE TYPE "Mood" AS ENUM ('Sad', 'so-so', 'happy, "really"');
CREATE DOMAIN d_int AS INT;
CREATE TABLE a_one (id INT PRIMARY KEY, a_citext CITEXT[], a_hstore HSTORE[], a_ltree LTREE[], a_mac8 MACADDR8[], a_xml XML[], a_name NAME[], a_qchar "char"[], a_mood "Mood"[], a_isbn ISBN[],
  a_bpchar BPCHAR[], a_varbit VARBIT[], a_bit1 BIT(1)[], a_dom d_int[], a_line LINE[], a_tsv TSVECTOR[]);
CREATE TABLE a_two (id INT PRIMARY KEY, a_i8r INT8RANGE[], a_numr NUMRANGE[], a_tsr TSRANGE[], a_tstzr TSTZRANGE[], a_dater DATERANGE[], a_time3 TIME(3)[], a_timetz0 TIMETZ(0)[], a_ts6 TIMESTAMP(6)[],
  a_tstz0 TIMESTAMPTZ(0)[], a_num NUMERIC(20,4)[], a_numfree NUMERIC[], a_f8 FLOAT8[], a_nn INT[] NOT NULL DEFAULT '{1,2}', a_tn TEXT[] NOT NULL DEFAULT '{}');
INSERT INTO a_one VALUES (1, '{A,b}', ARRAY['a=>1,b=>NULL', '']::hstore[], '{a.b,c}', '{08:00:2b:01:02:03:04:05}', ARRAY['<a/>']::xml[], '{n1,n2}', '{x}', '{Sad,"happy, \"really\"",NULL}', '{978-0-393-04002-9}', '{a,"b "}', '{101,1}', '{1,0}', '{1,2}', NULL, ARRAY['a b'::tsvector]);
INSERT INTO a_two VALUES (1, '{"[1,5)",empty}', '{"(1.5,2]"}', '{"[2020-01-01 00:00:00,2020-01-02 00:00:00)"}', '{"[2020-01-01 00:00:00+02,)"}', '{"[2020-01-01,2020-01-05]"}', '{10:11:12.345,NULL}', '{10:11:12+03}', '{2020-01-01 00:00:00.000001,NULL}', '{2020-01-01 00:00:00+02}', '{1.5,NULL,-0.0001}', '{1.50,1e20}', '{1,NaN,Infinity,1e-7}');
