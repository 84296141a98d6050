"""Confluent's registry interface, through Confluent's own client. Worker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from tailrace.errors import ConnectionFailed, PrerequisiteError
from tailrace.formats.registry.base import SECONDS, RegistryUnanswered, refused
from tailrace.formats.registry.options import Access, Registry
from tailrace.process.installation import pip_install

_Found = TypeVar("_Found")


class Client:
    """See registry.base.Client."""

    def __init__(self, access: Access) -> None:
        try:
            from confluent_kafka import schema_registry
        except ImportError as missing:
            raise PrerequisiteError(
                f"Confluent's client of registries cannot be imported: {missing}.",
                f"Install it where Spark's workers run: {pip_install('tailrace[avro]')}.",
            ) from None
        self._library: Any = schema_registry
        self._client = self._library.SchemaRegistryClient(_settings(access))

    def register(self, registry: Registry, subject: str, schema: str, kind: str) -> int:
        text = self._library.Schema(schema, kind)
        return int(self._asked(registry, subject, lambda: self._client.register_schema(
            subject, text, registry.normalizes)))  # fmt: skip

    def find(self, registry: Registry, subject: str, schema: str, kind: str) -> int:
        text = self._library.Schema(schema, kind)
        found = self._asked(registry, subject, lambda: self._client.lookup_schema(subject, text, registry.normalizes))
        return int(found.schema_id)

    def latest(self, registry: Registry, subject: str) -> tuple[int, str]:
        # the library would repeat the registry's first answer
        self._client.clear_latest_caches()
        found = self._asked(registry, subject, lambda: self._client.get_latest_version(subject))
        return int(found.schema_id), str(found.schema.schema_str)

    def _asked(self, registry: Registry, subject: str, ask: Callable[[], Any]) -> Any:
        try:
            return ask()
        except self._library.SchemaRegistryError as answer:
            status = int(answer.http_status_code)
            if status >= 500 or status == 429:
                raise RegistryUnanswered(f"HTTP {status}") from None
            raise refused(registry, subject, status, str(answer.error_message)) from None
        except ConnectionFailed as error:
            raise RegistryUnanswered(error.message) from None
        except Exception as error:
            # the library raises the errors of whichever transport it uses
            if _is_of_transport(error):
                raise RegistryUnanswered(type(error).__name__) from None
            raise


def _is_of_transport(error: Exception) -> bool:
    return any(kind.__name__ == "TransportError" for kind in type(error).__mro__) or isinstance(error, OSError)


def _settings(access: Access) -> dict[str, Any]:
    """Return the settings of Confluent's client."""
    made: dict[str, Any] = {"url": access.url, "timeout": SECONDS, "max.retries": 0}
    if access.user:
        made["basic.auth.user.info"] = f"{access.user}:{access.password}"
    fields = dict(access.bearer)
    if (token := access.token) is not None:
        made |= {
            "bearer.auth.credentials.source": "CUSTOM",
            "bearer.auth.custom.provider.config": {},
            "bearer.auth.custom.provider.function": lambda _: {**fields, "bearer.auth.token": token.password()},
        }
    elif fields:
        made |= {"bearer.auth.credentials.source": "STATIC_TOKEN", **fields}
    if access.trusted:
        made["ssl.ca.location"] = access.trusted
    if access.certificate:
        made |= {"ssl.certificate.location": access.certificate, "ssl.key.location": access.key}
    if access.key_password:
        made["ssl.key.password"] = access.key_password
    return made
