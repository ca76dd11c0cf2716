"""A certificate authority of one stack, for a team without a certificate of its own.

Colleagues who trust this authority trust it for one name alone: its name constraints exclude everything but the host of
the stack, so that its key, if stolen, vouches for no other site. Its key stays with the user who runs ``limbeck up``;
the server has a key of its own, which ``limbeck up`` replaces with the certificate before that expires.
"""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from flows.servers.access import write_private

AUTHORITY_DAYS = 3650
CERTIFICATE_DAYS = 397
"""Browsers refuse certificates that are valid for longer than 398 days."""
RENEWAL_DAYS = 30
BACKDATED = timedelta(hours=1)
"""For clients whose clock is late."""
KeyPair = tuple[x509.Certificate, ec.EllipticCurvePrivateKey]


def authority_of(folder: Path, host: str) -> KeyPair:
    """Return the authority of a folder and its key; create both if there is none."""
    certificate, key = folder / "authority.crt", folder / "authority.key"
    if key.exists():
        found = serialization.load_pem_private_key(key.read_bytes(), None)
        assert isinstance(found, ec.EllipticCurvePrivateKey)
        return x509.load_pem_x509_certificate(certificate.read_bytes()), found
    folder.mkdir(mode=0o700, exist_ok=True)
    made = new_authority(host)
    certificate.write_bytes(pem(made[0]))
    write_private(key, private_pem(made[1]))
    return made


def new_authority(host: str) -> KeyPair:
    """Return a new authority for one host."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"Limbeck authority of {host}"[:64])])
    builder = unsigned(name, name, key.public_key(), AUTHORITY_DAYS)
    for extension, critical in (
        (x509.BasicConstraints(ca=True, path_length=0), True),
        (key_usage(signs_certificates=True), True),
        (constraints(alternative_names(host)[0]), True),
        (x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False),
    ):
        builder = builder.add_extension(extension, critical)
    return builder.sign(key, hashes.SHA256()), key


def new_certificate(authority: KeyPair, host: str, days: float = CERTIFICATE_DAYS) -> KeyPair:
    """Return a certificate for a host, signed by the authority, and its new key."""
    signer, secret = authority
    key = ec.generate_private_key(ec.SECP256R1())
    # not the host alone: OpenSSL would take an address there for a DNS name, and these are excluded
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"Server {host}"[:64])])
    builder = unsigned(name, signer.subject, key.public_key(), days)
    for extension, critical in (
        (x509.BasicConstraints(ca=False, path_length=None), True),
        (key_usage(signs_certificates=False), True),
        (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False),
        (x509.SubjectAlternativeName(alternative_names(host)), False),
        (x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False),
        (x509.AuthorityKeyIdentifier.from_issuer_public_key(secret.public_key()), False),
    ):
        builder = builder.add_extension(extension, critical)
    return builder.sign(secret, hashes.SHA256()), key


def unsigned(
    subject: x509.Name, issuer: x509.Name, public: ec.EllipticCurvePublicKey, days: float
) -> x509.CertificateBuilder:
    """Return a certificate that is valid from now on, without its extensions and its signature."""
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(min(now, now + timedelta(days=days)) - BACKDATED)
        .not_valid_after(now + timedelta(days=days))
    )


def key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    """Return the uses of a key: an authority signs certificates, a server signs handshakes."""
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def alternative_names(host: str) -> list[x509.GeneralName]:
    """Return the host in the form of a certificate: an IP address or a DNS name."""
    try:
        return [x509.IPAddress(ipaddress.ip_address(host))]
    except ValueError:
        return [x509.DNSName(host)]


def constraints(name: x509.GeneralName) -> x509.NameConstraints:
    """Return the constraints that permit one host. A permitted name leaves names of other types open, so these are
    excluded, all of them."""
    if isinstance(name, x509.IPAddress):
        only = x509.IPAddress(ipaddress.ip_network(name.value))  # in constraints an address is a network of one
        return x509.NameConstraints([only], [x509.DNSName("")])
    everywhere = [x509.IPAddress(ipaddress.ip_network(one)) for one in ("0.0.0.0/0", "::/0")]
    return x509.NameConstraints([name], everywhere)


def pem(certificate: x509.Certificate) -> bytes:
    """Return a certificate as text."""
    return certificate.public_bytes(serialization.Encoding.PEM)


def private_pem(key: ec.EllipticCurvePrivateKey) -> str:
    """Return a key as text, which the caller must keep private."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
