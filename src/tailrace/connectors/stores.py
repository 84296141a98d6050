"""Certificates and keys from PKCS12 files, as PEM files for OpenSSL. Planner and worker.

A decrypted key is a file in memory that only its process can open, so nothing is left of it however the process ends.
On systems without such files (Linux has them) it is a temporary file. The end of the process removes it, or, if the
process is killed, the next start.
"""

from __future__ import annotations

import os
import tempfile
import threading
from functools import cache
from pathlib import Path

from tailrace.errors import PrerequisiteError
from tailrace.process import temporary

_REMEDY = "Check its path, its password and its type."
_lock = threading.Lock()


def client_certificate(path: str, password: str) -> str:
    """Return the path of a PEM file with the certificate and the private key of the PKCS12 file at `path`.

    Only this user can read the file. It ends with the process, and other processes cannot use the path. Raises
    PrerequisiteError.
    """
    return _converted(path, password, True)


def authorities(path: str, password: str) -> str:
    """Return the path of a PEM file with all certificates of the PKCS12 file at `path`. Raises PrerequisiteError."""
    return _converted(path, password, False)


def _converted(path: str, password: str, with_key: bool) -> str:
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise PrerequisiteError(f"The store {path} cannot be read: {error.strerror}.", _REMEDY) from None
    # Cached by content, so that the next connection uses a renewed certificate.
    with _lock:
        return _written(path, content, password, with_key)


@cache
def _written(path: str, content: bytes, password: str, with_key: bool) -> str:
    pem = _pem(path, content, password, with_key)
    return _in_memory(pem) or _in_file(pem)


def _in_memory(pem: bytes) -> str:
    """Return the path of a file that exists only in memory; "" if the system has none, or no paths for them."""
    if not hasattr(os, "memfd_create"):
        return ""
    try:
        handle = os.memfd_create("tailrace-store", os.MFD_CLOEXEC)
    except OSError:
        return ""
    os.fchmod(handle, 0o600)
    # the file stays open: the client reads it again whenever it resolves its servers
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
            "Say so in the option of its type: PEM.",
        )
    try:
        found = pkcs12.load_pkcs12(content, password.encode() if password else None)
    except ValueError:
        raise PrerequisiteError(f"The store {path} is not a PKCS12 file, or has another password.", _REMEDY) from None
    certificates = [one.certificate for one in (found.cert, *found.additional_certs) if one is not None]
    parts = [one.public_bytes(Encoding.PEM) for one in certificates]
    if not parts:
        raise PrerequisiteError(f"The store {path} holds no certificate.", _REMEDY)
    if with_key:
        if found.key is None:
            raise PrerequisiteError(f"The store {path} holds no private key.", _REMEDY)
        parts.insert(0, found.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return b"".join(parts)
