"""Jar: a library of the JVM that PySpark does not bring, as Maven Central has it. Values only."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Jar:
    """One jar of Maven Central: its coordinate and the SHA-256 of its bytes. What it depends on is not taken along."""

    organisation: str
    module: str
    revision: str
    sha256: str

    @property
    def file_name(self) -> str:
        return f"{self.module}-{self.revision}.jar"
