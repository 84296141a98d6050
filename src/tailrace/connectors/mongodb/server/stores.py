"""Certificates and keys out of PKCS12 files, as PEM files that OpenSSL reads. Planner and worker.

A decrypted key is in the memory of its process, under a name that the process alone has: nothing is left of it however
the process ends. Where the system has no such files (Linux has them) it is a temporary file, which the end of the
process removes, or, where that is killed, the start of the next one.
"""

from __future__ import annotations

import os
import tempfile
import threading
from functools import cache
from pathlib import Path

from tailrace import temporary
from tailrace.errors import PrerequisiteError

_REMEDY = "Check its path, its password and its type."
_lock = threading.Lock()


def client_certificate(path: str, password: str) -> str:
    """The path of a PEM file with the certificate and the private key of the PKCS12 file at `path`.

    The file is readable by this user alone and goes with the process, in which alone the path has a
    meaning. Raises PrerequisiteError.
    """
    return _converted(path, password, True)


def authorities(path: str, password: str) -> str:
    """The path of a PEM file with all certificates of the PKCS12 file at `path`. Raises PrerequisiteError."""
    return _converted(path, password, False)


def _converted(path: str, password: str, with_key: bool) -> str:
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise PrerequisiteError(f"The store {path} cannot be read: {error.strerror}.", _REMEDY) from None
    # By content, so that a renewed certificate is taken with the next connection.
    with _lock:
        return _written(path, content, password, with_key)


@cache
def _written(path: str, content: bytes, password: str, with_key: bool) -> str:
    pem = _pem(path, content, password, with_key)
    return _in_memory(pem) or _in_file(pem)


def _in_memory(pem: bytes) -> str:
    """The path of a file that only exists in memory; empty where the system has none, or no names for them."""
    if not hasattr(os, "memfd_create"):
        return ""
    try:
        handle = os.memfd_create("tailrace-store", os.MFD_CLOEXEC)
    except OSError:
        return ""
    os.fchmod(handle, 0o600)
    # it stays open: the client reads it again when it resolves its servers anew
    with os.fdopen(handle, "wb", closefd=False) as file:
        file.write(pem)
    name = f"/proc/self/fd/{handle}"
    try:
        if Path(name).read_bytes() == pem:
            return name
    except OSError:
        pass
    os.close(handle)
    return ""


def _in_file(pem: bytes) -> str:
    handle, name = tempfile.mkstemp(suffix=".pem", dir=_folder())
    with os.fdopen(handle, "wb") as file:
        file.write(pem)
    return name


@cache
def _folder() -> str:
    return temporary.folder("tailrace-stores-")


def _pem(path: str, content: bytes, password: str, with_key: bool) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, pkcs12

    if content.startswith(b"-----BEGIN"):
        raise PrerequisiteError(
            f"The store {path} is a PEM file.",
            "Say so: mongodb.ssl.keystore.type or mongodb.ssl.truststore.type is PEM.",
        )
    try:
        found = pkcs12.load_pkcs12(content, password.encode() if password else None)
    except ValueError:
        raise PrerequisiteError(f"The store {path} is no PKCS12 file, or has another password.", _REMEDY) from None
    certificates = [one.certificate for one in (found.cert, *found.additional_certs) if one is not None]
    parts = [one.public_bytes(Encoding.PEM) for one in certificates]
    if not parts:
        raise PrerequisiteError(f"The store {path} holds no certificate.", _REMEDY)
    if with_key:
        if found.key is None:
            raise PrerequisiteError(f"The store {path} holds no private key.", _REMEDY)
        parts.insert(0, found.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return b"".join(parts)
