"""A certificate authority, and who it vouches for."""

from __future__ import annotations

import datetime as dt
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_SIGNS_CERTIFICATES = x509.KeyUsage(
    digital_signature=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)


@dataclass(frozen=True)
class Authority:
    """Writes certificates into a folder; `file` is its own."""

    folder: Path
    file: Path
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def create(cls, folder: Path, name: str = "authority") -> Authority:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = (
            _builder(name, name, key, key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_SIGNS_CERTIFICATES, critical=True)
        )
        certificate = builder.sign(key, hashes.SHA256())
        file = folder / f"{name}.pem"
        file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        return cls(folder, file, certificate, key)

    def issue(self, name: str, *sans: str, days: int = 1) -> tuple[Path, Path]:
        """Return the files of a certificate for DNS names and addresses, which ends in so many days, and of its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = [_general_name(san) for san in sans or (name,)]
        builder = _builder(name, self.file.stem, key, self.key, days).add_extension(
            x509.SubjectAlternativeName(names), critical=False
        )
        certificate = builder.sign(self.key, hashes.SHA256())
        files = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        files[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        files[1].write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return files


def _general_name(san: str) -> x509.GeneralName:
    return x509.IPAddress(ipaddress.ip_address(san)) if san[0].isdigit() else x509.DNSName(san)


def _builder(
    subject: str, issuer: str, key: ec.EllipticCurvePrivateKey, issuer_key: ec.EllipticCurvePrivateKey, days: int = 1
) -> x509.CertificateBuilder:
    # Python verifies strictly from 3.13 on: it wants the identifiers of both keys, as RFC 5280 does.
    now = dt.datetime.now(dt.timezone.utc)
    ends = now + dt.timedelta(days=days)
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(min(now, ends) - dt.timedelta(minutes=5))
        .not_valid_after(ends)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
    )
