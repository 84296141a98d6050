"""Which deliberate error an exception out of Spark stands for. No I/O.

An error that the planner or a worker raises reaches the driver as text inside a Java exception, often several
times: with Python's traceback, and again as the cause of what failed because of it.
"""

from __future__ import annotations

import re

from tailrace import errors
from tailrace.errors import SinkError, TailraceError

_OWN = re.compile(r"\btailrace\.errors\.(\w+): ([^\n]*(?:\n +(?!at |File |SQLSTATE)[^\n]*)*)")
_KAFKA = re.compile(r"\borg\.apache\.kafka\.[\w.]*?(\w+Exception): ([^\n]+)")
_HANDSHAKE = r"\b(?:[a-z]\w*\.)+(SSLHandshakeException): "
# What the producer's exceptions are caused by, and the options that it hangs on. A login that the producer cannot read
# is not quoted: its words may be a part of the password.
_SECURITY = (
    (
        re.compile(_HANDSHAKE + r"(No (?:subject alternative|name)[^\n]+)"),
        "Name the broker in debezium.sink.kafka.producer.bootstrap.servers as its certificate does; the name that it "
        "tells of itself (advertised.listeners) counts as well.",
    ),
    (
        re.compile(_HANDSHAKE + r"([^\n]+)"),
        "Name the file of the broker's authority in debezium.sink.kafka.producer.ssl.truststore.location, and its kind "
        "in ssl.truststore.type: PEM, PKCS12 or JKS.",
    ),
    (
        re.compile(r"\b(SaslAuthenticationException): ([^\n]+)"),
        "Check debezium.sink.kafka.producer.sasl.mechanism and sasl.jaas.config: the broker refuses the login.",
    ),
    (
        re.compile(r"\b(\w+Exception): (Failed to load [^\n]+)"),
        "Check debezium.sink.kafka.producer.ssl.truststore.*, ssl.keystore.* and their passwords; the files have to be "
        "where the tasks run.",
    ),
    (
        re.compile(r"(IllegalArgumentException): [^\n]*(in JAAS config|JAAS config entry|JAAS configuration)"),
        "Check debezium.sink.kafka.producer.sasl.jaas.config: MODULE required username=… password=…;",
    ),
    (
        re.compile(r"org\.apache\.kafka\.\S*?(TimeoutException): (Topic [^\n]+ not present in metadata[^\n]*)"),
        "Check debezium.sink.kafka.producer.bootstrap.servers, and that producer.security.protocol is what the broker "
        "speaks at that port.",
    ),
)


def cause(error: BaseException) -> TailraceError | None:
    """The deliberate error behind `error`: itself, one of its causes, or one that their texts tell of."""
    seen: set[int] = set()
    at: BaseException | None = error
    texts: list[str] = []
    while at is not None and id(at) not in seen:
        if isinstance(at, TailraceError):
            return at
        seen.add(id(at))
        texts.append(str(at))
        at = at.__cause__ or at.__context__
    return recognise("\n".join(texts))


def recognise(text: str) -> TailraceError | None:
    """The deliberate error that a text of exceptions tells of; the first, which is the innermost one raised."""
    for found in _OWN.finditer(text):
        kind = getattr(errors, found.group(1), None)
        if isinstance(kind, type) and issubclass(kind, TailraceError):
            return kind(_unescaped(found.group(2)).rstrip())
    kafka = _KAFKA.search(text)
    if kafka:
        remedy = "Check debezium.sink.kafka.producer.* and the broker."
        for expression, told in _SECURITY:
            better = expression.search(text)
            if better:
                kafka, remedy = better, told
                break
        kind, said = kafka.groups()
        return SinkError(f"Kafka refuses the records or cannot be reached: {said.strip()} ({kind}).", remedy)
    return None


def _unescaped(text: str) -> str:
    """Without what a JSON log line around the text may have left of line ends."""
    return text.partition("\\n")[0]
