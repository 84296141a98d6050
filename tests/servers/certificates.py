"""Certificates for servers of tests that speak TLS: an authority and what it has signed, as PEM and as PKCS12 files."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import NameOID

WORD = "word"
"""The password of the PKCS12 files."""


class Authority:
    """A certificate authority, and a certificate for this machine that it has signed."""

    def __init__(self, *, rsa_keys: bool = False) -> None:
        """`rsa_keys` are for servers whose TLS knows no elliptic curves."""
        self._rsa_keys = rsa_keys
        self.key, self.certificate = self._certificate("authority", None, None)
        self.own_key, self.own = self._certificate("localhost", self.certificate.subject, self.key)

    def _certificate(self, name: str, issuer: Any, signer: Any) -> tuple[Any, Any]:
        key: Any = rsa.generate_private_key(65537, 2048) if self._rsa_keys else ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer or subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        )
        signing = (signer or key).public_key()
        builder = builder.add_extension(
            x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
        ).add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signing), critical=False)
        return key, builder.sign(signer or key, hashes.SHA256())

    def pem(self, folder: Path) -> tuple[Path, Path]:
        """Files of the server: its certificate and key, and the authority."""
        server, authority = folder / "server.pem", folder / "authority.pem"
        key = self.own_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        server.write_bytes(self.own.public_bytes(Encoding.PEM) + key)
        authority.write_bytes(self.certificate.public_bytes(Encoding.PEM))
        return server, authority

    def pkcs12(self, folder: Path) -> tuple[Path, Path]:
        """A key store and a trust store, as Java has them."""
        keys, trust = folder / "keys.p12", folder / "trust.p12"
        secret = BestAvailableEncryption(WORD.encode())
        keys.write_bytes(pkcs12.serialize_key_and_certificates(b"me", self.own_key, self.own, None, secret))
        trust.write_bytes(pkcs12.serialize_key_and_certificates(None, None, None, [self.certificate], secret))
        return keys, trust
