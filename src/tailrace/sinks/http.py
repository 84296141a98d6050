"""The sink `http`: requests to an HTTP server, one at a time, as from Debezium Server. At least once. Driver."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence

from tailrace.config.config import Config
from tailrace.config.formats import form_of, format_of
from tailrace.connectors import advice
from tailrace.connectors.findings import Finding
from tailrace.errors import ConnectionFailed, SinkError
from tailrace.process import reachability
from tailrace.sinks import authentication
from tailrace.sinks.base import Settings
from tailrace.sinks.web import FAILURES, Address, WebClient, failure, is_header_name, is_header_value
from tailrace.sinks.writer import DEAD_LETTERS, OneWriter, Record, identity, log

_KNOWN = (
    "url", "timeout.ms", "retries", "retry.interval.ms", "headers.prefix", "headers.encode.base64", "batch.enabled",
    "batch.max-size", *authentication.OPTIONS, DEAD_LETTERS,
)  # fmt: skip

# Statuses whose cause is the record, not the server or its address.
_OF_THE_RECORD = frozenset((400, 409, 413, 422, 431))
_UNAUTHORIZED = 401

# A text is nearly always JSON from an outbox; in an array it must be JSON.
_MEDIA = {"json": "application/json", "string": "application/json", "cloudevents": "application/cloudevents+json"}
_MEDIA_BATCH = _MEDIA | {"cloudevents": "application/cloudevents-batch+json"}


class HttpSink(OneWriter):
    """A sink that sends each value as the body of a POST, with the record's headers as headers of the request.

    The next request follows after the server has answered with a status of 200 to 299. As in Debezium Server, keys and
    records without a value are not sent. With `batch.enabled` a request holds a JSON array of up to `batch.max-size`
    values and no headers of records.
    """

    name = "http"
    columns = ("op", "topic", "key", "value", "headers", "position", "ordinal")
    delivery = "at least once"

    def __init__(self, options: Mapping[str, str]) -> None:
        settings = Settings(self.name, options)
        settings.only((*_KNOWN, *(name for name in options if name.startswith(authentication.PARAMS))))
        self._batches = settings.boolean("batch.enabled")
        size = settings.number("batch.max-size", 200, 1)
        super().__init__(settings, size if self._batches else 1)
        timeout = settings.seconds("timeout.ms", 60_000, 1)
        self._url = settings.located("url", "K_SINK")
        self._client: WebClient | None = None
        if self._url:
            try:
                self._client = WebClient(Address.of(self._url), timeout)
            except ValueError as fault:
                raise settings.wrong("url", str(fault)) from None
        self._retries = settings.number("retries", 5)
        self._interval = settings.seconds("retry.interval.ms", 1000)
        self._prefix = settings.text("headers.prefix", "X-DEBEZIUM-")
        if not is_header_name(self._prefix):
            raise settings.wrong("headers.prefix", "has characters that a header's name cannot have")
        self._encodes = settings.boolean("headers.encode.base64", True)
        self._authentication = authentication.authentication(settings, timeout)
        self._media = (_MEDIA_BATCH if self._batches else _MEDIA)["json"]

    def adopt(self, source: Config) -> None:
        super().adopt(source)
        form = format_of(source["value.converter"]).rpartition(".")[2].lower()
        form = form.removesuffix("converter").removeprefix("simple")
        is_avro = form == "cloudevents" and form_of(source, "value") == "bytes"
        if self._batches and (form not in _MEDIA_BATCH or is_avro):
            raise SinkError(
                "debezium.sink.http.batch.enabled = true is not supported with values that are not JSON.",
                "Set debezium.format.value = json, or leave it out.",
            )
        form = "cloudevents in avro" if is_avro else form
        self._media = (_MEDIA_BATCH if self._batches else _MEDIA).get(form, "application/octet-stream")

    def missing(self) -> list[Finding]:
        return [] if self._client else [Finding("warning", "sink", "debezium.sink.http.url is not set.", _URL)]

    def servers(self) -> list[reachability.Place]:
        if self._client is None:
            return []
        at = self._client.address
        return [(at.host, at.port or (443 if at.scheme == "https" else 80))]

    def advice(self) -> list[Finding]:
        if self._client is None:
            return self.missing()
        at = self._client.address
        if at.scheme == "http" and advice.is_elsewhere(at.host):
            return [advice.in_the_clear(at.host, "Give a URL that begins with https://.", "The sink's connection")]
        return []

    def begin(self) -> None:
        if self._client is None:
            raise SinkError("The sink http needs debezium.sink.http.url.", _URL)

    def close(self) -> None:
        if self._client is not None:
            self._client.close()

    def wanted(self, record: Record) -> bool:
        return record["value"] is not None

    def deliver(self, records: Sequence[Record], first: int) -> None:
        if not self._batches:
            self._deliver_one(records[0], first)
            return
        values = [bytes(record["value"]) for record in records]
        if any(not _is_json(value) for value in values):
            raise SinkError(
                "debezium.sink.http.batch.enabled = true is not supported with values that are not JSON.",
                "Leave it out.",
            )
        reason = self._post(b"[" + b",".join(values) + b"]", [], self._id(records, first))
        if reason and len(records) > 1:
            # Sent alone, each record shows whether it is the refused one.
            for number, record in enumerate(records):
                self.deliver([record], first + number)
        elif reason:
            self.refuse(records[0], reason)

    def _deliver_one(self, record: Record, number: int) -> None:
        headers: list[tuple[str, bytes]] = []
        for header in record["headers"] or ():
            name = self._prefix + header["key"]
            value = b"" if header["value"] is None else bytes(header["value"])
            value = base64.b64encode(value) if self._encodes else value
            if not is_header_name(name) or not is_header_value(value):
                self.refuse(record, "it has a header that HTTP cannot carry")
                return
            headers.append((name, value))
        reason = self._post(bytes(record["value"]), headers, self._id([record], number))
        if reason:
            self.refuse(record, reason)

    def _id(self, records: Sequence[Record], number: int) -> str:
        """Return an id of a request that is the same in a replay of its batch, and that no other records get.

        The number of the first record is not enough: a replay with another configuration, or one that reads snapshot
        rows anew, may have other records in the same places.
        """
        who = hashlib.sha256(repr([identity(record) for record in records]).encode()).hexdigest()
        return f"{self.batch_name()}-{number}-{who[:16]}"

    def _post(self, body: bytes, headers: Sequence[tuple[str, bytes]], message: str) -> str:
        """Send a body, with `message` as its id, until the server accepts it.

        Returns "", or the reason if the server refuses the record itself.
        Raises ConnectionFailed when all tries have failed, or SinkError if the last status is a refusal (3xx, 4xx).
        """
        assert self._client is not None
        renewed, tries, fault = False, 0, ""
        while True:
            try:
                own = {"Content-Type": self._media} | self._authentication.headers(message, body)
                answer = self._client.send("POST", [*own.items(), *headers], body)
            except FAILURES as error:
                fault = failure(error)
            except ConnectionFailed as error:
                if tries == self._retries:
                    raise
                fault = error.message.rstrip(".")
            else:
                if answer.is_success:
                    return ""
                if answer.status in _OF_THE_RECORD:
                    return f"the server answers with status {answer.status}"
                if answer.status == _UNAUTHORIZED and not renewed and self._authentication.renew():
                    renewed = True
                    continue
                fault = f"status {answer.status}"
            if tries == self._retries:
                raise self._failed(fault)
            tries += 1
            log.warning("http %s: %s; try %d of %d follows", self._client.address.shown, fault, tries, self._retries)
            self.wait(self._interval)

    def _failed(self, reason: str) -> SinkError | ConnectionFailed:
        assert self._client is not None
        text = f"{self._client.address.shown} has not accepted a record in {self._retries + 1} tries: {reason}."
        if reason.startswith(("status 3", "status 4")) and reason not in ("status 408", "status 425", "status 429"):
            return SinkError(text, "Check debezium.sink.http.url and debezium.sink.http.authentication.*.")
        return ConnectionFailed(text, "Check debezium.sink.http.url; debezium.sink.http.retries limits the retries.")


_URL = "Set it, there or as K_SINK or DEBEZIUM_SINK_HTTP_URL in the environment."


def _is_json(value: bytes) -> bool:
    if value[:1] in (b"{", b"["):
        return True
    try:
        json.loads(value)
    except ValueError:
        return False
    return True
