"""The sink's producer gets tokens (OAUTHBEARER) by the handler in Kafka's own jar; a stub is the token server."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from tailrace.sinks.kafka import KafkaSink

SECRET = "hunter2marker"


def token() -> str:
    """Return an unsigned JWT, as the producer reads it before it sends it."""
    now = int(time.time())
    parts = ({"alg": "none"}, {"sub": "app", "scope": "kafka", "iat": now, "exp": now + 3600})
    texts = (base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts)
    return ".".join((*texts, "c2lnbmVk"))


class TokenServer(HTTPServer):
    """`logins` are the decoded logins of requests; a wrong one is refused."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.logins: list[str] = []


class _Answers(BaseHTTPRequestHandler):
    server: TokenServer

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        login = base64.b64decode(self.headers["Authorization"].removeprefix("Basic ")).decode()
        self.server.logins.append(login)
        self.send_response(200 if login == f"app:{SECRET}" else 401)
        self.end_headers()
        self.wfile.write(json.dumps({"access_token": token(), "token_type": "Bearer"}).encode())

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def tokens() -> Iterator[TokenServer]:
    stub = TokenServer()
    thread = Thread(target=stub.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield stub
    stub.shutdown()
    thread.join()
    stub.server_close()


def test_the_producer_asks_the_token_server_at_its_login(spark: SparkSession, tokens: TokenServer) -> None:
    def login(secret: str) -> None:
        """Make the producer, which logs in before it connects."""
        module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLogin"
        sink = KafkaSink({
            "producer.bootstrap.servers": "127.0.0.1:1",
            "producer.security.protocol": "SASL_PLAINTEXT",
            "producer.sasl.mechanism": "OAUTHBEARER",
            "producer.sasl.login.callback.handler.class": f"{module}CallbackHandler",
            "producer.sasl.oauthbearer.token.endpoint.url": f"http://127.0.0.1:{tokens.server_port}/token",
            "producer.sasl.login.retry.backoff.max.ms": "100",
            "producer.sasl.jaas.config": f'{module}Module required clientId="app" clientSecret="{secret}";',
        })  # fmt: skip
        jvm = spark._jvm
        options = jvm.java.util.HashMap()
        for name, text in sink.options.items():
            options.put(name.removeprefix("kafka."), text)
        for name in ("key", "value"):
            options.put(f"{name}.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer")
        jvm.org.apache.kafka.clients.producer.KafkaProducer(options).close()

    login(SECRET)
    assert tokens.logins == [f"app:{SECRET}"]
    with pytest.raises(Py4JJavaError) as caught:
        login("wrongmarker")
    assert "wrongmarker" not in str(caught.value)
    assert tokens.logins[-1] == "app:wrongmarker"
