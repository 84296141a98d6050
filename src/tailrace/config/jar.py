"""Jar: a library for the JVM that PySpark does not bring, on Maven Central. Values only."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Jar:
    """A jar of Maven Central: its coordinates and the SHA-256 of its bytes. Dependencies are not fetched.

    `classifier` names a variant of it, such as one that contains its dependencies.
    """

    organisation: str
    module: str
    revision: str
    sha256: str
    classifier: str = ""

    @property
    def file_name(self) -> str:
        return f"{self.module}-{self.revision}{self.classifier and f'-{self.classifier}'}.jar"
