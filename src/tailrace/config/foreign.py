"""Names in connectors' files that belong to another program, or to a database that is not supported. No I/O.

Debezium ignores options that it does not have, so such a name changes no event: it is reported, not refused. Every name
here is a known one of a known program. Any other name is probably misspelt, and so an error.
"""

from __future__ import annotations

import re

_WORKER = "it belongs to a Kafka Connect worker, and there is none"
_BROKERS = "it belongs to a Kafka Connect worker; the brokers are named in debezium.sink.kafka.producer.<option>"
_CLIENT = "it belongs to a Kafka client of a worker's; the producer's options are debezium.sink.kafka.producer.<option>"
_CONFLUENT = "it belongs to Confluent's platform"
_STREAMS = "it is a parameter of change streams in other programs; capture.mode says which documents events hold"
_MYSQL = "it is an option of Debezium's connectors for MySQL and MariaDB"
_ORACLE = "it is an option of Debezium's connector for Oracle"
_ENGINE = "it belongs to Debezium's engine; the parallelism is Spark's"
_DRIVER = "it tunes a Java driver"
_TIMEOUT = "connection.validation.timeout.ms says how long a connection may take"
_COMMENT = "it is a comment"

_FAMILIES: tuple[tuple[str, str], ...] = (
    (r"[_#/].*|comment|description", _COMMENT),
    (r"bootstrap\.servers", _BROKERS),
    (
        r"group\.id|plugin\.path|plugin\.discovery|rest\..+|listeners|listeners\..+|config\.storage\..+"
        r"|status\.storage\..+|config\.providers(\..+)?|internal\.(key|value)\.converter(\..+)?"
        r"|access\.control\..+|admin\.listeners(\..+)?|connector\.client\.config\.override\.policy"
        r"|exactly\.once\.source\.support|inter\.worker\..+|scheduled\.rebalance\.max\.delay\.ms"
        r"|task\.shutdown\.graceful\.timeout\.ms|topic\.tracking\..+|worker\..+|response\.http\.headers\.config"
        r"|connect\.protocol|rebalance\.timeout\.ms|session\.timeout\.ms|metadata\.max\.age\.ms|metric\.reporters"
        r"|metrics\..+|key\.converter\.class|value\.converter\.class",
        _WORKER,
    ),
    (
        r"(producer|consumer|admin)\..+|security\.protocol|sasl\..+|ssl\..+|client\.id|request\.timeout\.ms"
        r"|retry\.backoff\.ms|retries|acks|linger\.ms|batch\.size|buffer\.memory|compression\.type|max\.request\.size"
        r"|delivery\.timeout\.ms|enable\.idempotence|max\.in\.flight\.requests\.per\.connection|max\.poll\.\w+(\.ms)?"
        r"|fetch\.(min|max)\..+|auto\.offset\.reset|enable\.auto\.commit|key\.serializer|value\.serializer",
        _CLIENT,
    ),
    (r"confluent\..+|reporter\..+|value\.subject\.name\.strategy|key\.subject\.name\.strategy", _CONFLUENT),
    (r"(.+\.)?full\.document(\..+)?|change\.stream\..+", _STREAMS),
    (
        r"database\.server\.id(\.offset)?|gtid\..+|binlog\..+|include\.query|bigint\.unsigned\.handling\.mode"
        r"|connect\.keep\.alive(\.interval\.ms)?|enable\.time\.adjuster|inconsistent\.schema\.handling\.mode"
        r"|min\.row\.count\.to\.stream\.results|snapshot\.new\.tables|snapshot\.events\.as\.inserts|ddl\.parser\.mode"
        r"|internal\.implementation|use\.nongraceful\.disconnect|database\.ssl\.mode"
        r"|database\.(jdbc\.driver|jdbc\.protocol|protocol|use\.?ssl|allow\.?public\.?key\.?retrieval"
        r"|(connection|server)\.?time\.?zone|characterencoding|zerodatetimebehavior|tinyint1isbit)",
        _MYSQL,
    ),
    (
        r"log\.mining\..+|rac\.nodes|lob\.enabled|database\.(pdb\.name|connection\.adapter|out\.server\.name"
        r"|oracle\.version|tablename\.case\.insensitive)|openlogreplicator\..+|object\.id\.cache\.size"
        r"|legacy\.decimal\.handling\.strategy|archive\.(log|destination)\..+|event\.convert\.record\.rowid",
        _ORACLE,
    ),
    (r"vitess\..+|gcp\.spanner\..+|cassandra\..+", "it is an option of a connector for another database"),
    (r"rows\.fetch\.size", "it is an option of Debezium 0.x; rows are converted as they arrive"),
    (r"record\.processing\..+|task\.management\.timeout\.ms|engine\..+", _ENGINE),
    (r"(database\.)?(connection|connect)\.timeout(\.ms)?", _TIMEOUT),
    (
        r"(database|driver)\.(autoreconnect|connecttimeout|sockettimeout|logintimeout|tcpkeepalive|applicationname"
        r"|autosave|preparethreshold|preferquerymode|binarytransfer(enable|disable)?|rewritebatchedinserts"
        r"|defaultrowfetchsize|logunclosedconnections|loggerlevel|assumeminserverversion|useserverprepstmts"
        r"|cacheprepstmts|prepstmtcache\w+|maxreconnects|initialtimeout)",
        _DRIVER,
    ),
)
_COMPILED = tuple((re.compile(pattern, re.IGNORECASE), reason) for pattern, reason in _FAMILIES)


def reason(name: str) -> str:
    """Return why the option `name`, which the connector does not have, has no effect; "" for an unknown name."""
    return next((said for pattern, said in _COMPILED if pattern.fullmatch(name)), "")
