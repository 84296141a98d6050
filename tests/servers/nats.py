"""A NATS server with JetStream for tests: the machine's own nats-server, or that of Debian's package."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from tests.servers.debian import Server

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Stored:
    """A message of a stream."""

    subject: str
    payload: bytes
    headers: dict[str, str]


class NatsServer(Server):
    """See Server."""

    program = "nats-server"
    packages = ("nats-server",)

    def __init__(self, settings: str = "", **login: str) -> None:
        """`settings` are further lines of its configuration, `login` what the client is told to show."""
        super().__init__()
        self._settings = settings
        self._login = login

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def arguments(self) -> Sequence[str]:
        configuration = self._folder / "server.conf"
        configuration.write_text(
            f"host: 127.0.0.1\nport: {self.port}\njetstream {{ store_dir: {self._folder}/data }}\n{self._settings}\n"
        )
        return ["-c", str(configuration)]

    def make(self, stream: str, subjects: Sequence[str], **options: Any) -> None:
        """Make a stream that is kept on disk."""
        self.ask(lambda context: context.add_stream(name=stream, subjects=list(subjects), **options))

    def change(self, stream: str, subjects: Sequence[str], **options: Any) -> None:
        """Give a stream other options."""
        self.ask(lambda context: context.update_stream(name=stream, subjects=list(subjects), **options))

    def delete(self) -> None:
        """Remove all streams."""

        async def delete(context: Any) -> None:
            for found in await context.streams_info():
                await context.delete_stream(found.config.name)

        self.ask(delete)

    def storage(self, stream: str) -> str:
        """Return the directory in which a stream keeps its messages."""
        return str(self.ask(lambda context: context.stream_info(stream)).config.storage)

    def messages(self, stream: str) -> list[Stored]:
        """The messages of a stream, in its order."""

        async def read(context: Any) -> list[Stored]:
            found = []
            for number in range(1, (await context.stream_info(stream)).state.last_seq + 1):
                # The client's own way reads headers as those of mails, which have other letters than ASCII's in code.
                asked = json.dumps({"seq": number}).encode()
                answer = await context._nc.request(f"$JS.API.STREAM.MSG.GET.{stream}", asked)
                one = json.loads(answer.data)["message"]
                lines = base64.b64decode(one.get("hdrs", "")).decode().split("\r\n")[1:]
                pairs = (line.partition(": ") for line in lines if line)
                payload = base64.b64decode(one.get("data", ""))
                found.append(Stored(one["subject"], payload, {name: text for name, _, text in pairs}))
            return found

        return self.ask(read)

    def ask(self, question: Callable[[Any], Coroutine[Any, Any, T]]) -> T:
        """Return the answer of the server's JetStream, on a connection of its own."""
        import nats

        async def asked() -> T:
            # A stream of *.*.* would take the answers too, were their subjects of three parts.
            client = await nats.connect(self.url, allow_reconnect=False, inbox_prefix="_INBOX.tests", **self._login)
            try:
                return await question(client.jetstream())
            finally:
                await client.close()

        return asyncio.run(asked())
