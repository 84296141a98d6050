"""The interface of registry clients, and their errors. Worker."""

from __future__ import annotations

from typing import Protocol

from tailrace.errors import RegistryError
from tailrace.formats.registry.options import Access, Registry

SECONDS = 30
"""Timeout of a registry's answer, in s."""

_MOST = 300


class RegistryUnanswered(Exception):
    """The registry could not be reached, or failed; another try may help. The text says why, without secrets."""


class Client(Protocol):
    """A registry's interface. All methods raise RegistryUnanswered, or RegistryError if another try cannot help."""

    def __init__(self, access: Access) -> None: ...

    def register(self, registry: Registry, subject: str, schema: str, kind: str) -> int:
        """Register the schema under the subject, and return its id."""
        ...

    def find(self, registry: Registry, subject: str, schema: str, kind: str) -> int:
        """Return the id of the schema, which the subject must have."""
        ...

    def latest(self, registry: Registry, subject: str) -> tuple[int, str]:
        """Return the id and the text of the subject's latest schema."""
        ...


def refused(registry: Registry, subject: str, status: int, said: str) -> RegistryError:
    """Return the error for a refusal."""
    said = " ".join(said.split())[:_MOST]
    if status in (401, 403):
        return RegistryError(
            f"The schema registry of {registry.option} refuses the login (HTTP {status}).",
            "Correct the user and the password of the converter's options.",
        )
    if status == 404 and not registry.registers:
        return RegistryError(
            f"The schema registry of {registry.option} does not have the schema of the subject {subject}: {said}",
            "Register it, or let the converter do so (auto.register.schemas, apicurio.registry.auto-register).",
        )
    if status in (409, 422):
        return RegistryError(
            f"The schema registry of {registry.option} refuses the schema of the subject {subject} (HTTP {status}): "
            f"{said}",
            "If it is not compatible with the subject's older versions, change the subject's compatibility, or undo "
            "the change of the table. If a name is not allowed, set schema.name.adjustment.mode and "
            "field.name.adjustment.mode to avro.",
        )
    return RegistryError(
        f"The schema registry of {registry.option} refuses a request for the subject {subject} (HTTP {status}): {said}",
        "See the registry's log.",
    )
