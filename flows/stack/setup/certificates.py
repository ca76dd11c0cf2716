"""The certificate of a stack: a person's own, or one of the stack's own authority; checked as a client checks it,
before any server starts with it."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import certifi
from cryptography import x509
from cryptography.hazmat.primitives import hashes

from flows.stack.settings import LOOPBACK, Stack
from flows.stack.setup.authority import RENEWAL_DAYS, authority_of, new_certificate, pem, private_pem
from flows.stack.setup.folders import write
from tasks.errors import StackError

OWN_CERTIFICATE, AUTHORITY = "certificate", "authority"
"""Values of the setting ``tls``: a certificate from outside, or one of the stack's own authority."""


@dataclass(frozen=True)
class TlsOptions:
    """The options of ``limbeck up`` on TLS."""

    certificate: Path | None = None
    key: Path | None = None
    local_authority: bool = False

    def kind(self, host: str, before: str = "") -> str:
        """Return the setting ``tls`` for a host; ``before`` is that of an existing stack.

        Raises StackError if passwords would cross a network in the clear, or if the options contradict each other.
        """
        if (self.certificate is None) != (self.key is None):
            raise StackError("--certificate and --key belong together: name the certificate's file and its key's file")
        if self.certificate and self.local_authority:
            raise StackError("--certificate brings a certificate and --local-authority makes one; choose one of them")
        self.examined(host)
        chosen = OWN_CERTIFICATE if self.certificate else AUTHORITY if self.local_authority else before
        if not chosen and host not in LOOPBACK:
            raise StackError(
                f"--host {host} without TLS would send passwords over the network unencrypted; add --certificate FILE "
                f"--key FILE, or --local-authority, which makes a certificate that your colleagues can trust"
            )
        return chosen

    def examined(self, host: str) -> tuple[tuple[str, str], str]:
        """Return the user's certificate and key, and the authorities of its file that no client knows; raise StackError
        if a client would refuse them."""
        if not (self.certificate and self.key):
            return ("", ""), ""
        pair = read_pem(self.certificate), read_pem(self.key)
        roots = "".join(pem(one).decode() for one in certificates_in(pair[0]) if one.subject == one.issuer)
        check(host, pair, certifi.contents() + roots, self.certificate)
        return pair, roots


NO_TLS_OPTIONS = TlsOptions()
"""No option on TLS: an existing stack stays as it is."""


def install(stack: Stack, wanted: TlsOptions) -> bool:
    """Install the certificate before nginx reads it; return whether it is another one than before.

    Raises StackError if a client that trusts what the clients of this stack trust would refuse it.
    """
    if wanted.certificate:
        new, roots = wanted.examined(stack.settings.host)
    elif stack.settings.tls == AUTHORITY:
        new, roots = of_authority(stack), (stack.tls / "authority.crt").read_text()
    else:
        if not stack.certificate.exists():
            raise StackError("this stack has lost its certificate; name it again: --certificate FILE --key FILE")
        return False
    bundle = certifi.contents() + roots
    check(stack.settings.host, new, bundle, wanted.certificate or stack.certificate)
    stack.trust.write_text(bundle)  # public; the folder is one that workers and servers can walk into
    stack.trust.chmod(0o644)
    if stack.certificate.exists() and stack.certificate.read_text() == new[0]:
        return False
    write(stack.certificate, new[0], "nginx")
    write(stack.certificate_key, new[1], "nginx")
    return True


def of_authority(stack: Stack) -> tuple[str, str]:
    """Return the installed certificate of the authority and its key; a new one if it soon expires."""
    authority = authority_of(stack.tls, stack.settings.host)
    if stack.certificate.exists() and days_left(stack) > RENEWAL_DAYS:
        return stack.certificate.read_text(), stack.certificate_key.read_text()
    certificate, key = new_certificate(authority, stack.settings.host)
    return pem(certificate).decode(), private_pem(key)


def read_pem(path: Path) -> str:
    """Return the text of a file that the user named."""
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise StackError(f"{path} cannot be read ({error}); name a file in PEM format") from error


def certificates_in(text: str) -> list[x509.Certificate]:
    """Return the certificates of a PEM file; raise StackError if there is none."""
    try:
        return x509.load_pem_x509_certificates(text.encode())
    except ValueError as error:
        raise StackError(f"the file of --certificate has no certificate in PEM format ({error})") from error


def fingerprint(path: Path) -> str:
    """Return the SHA-256 fingerprint of a certificate, in the form that browsers show."""
    return certificates_in(read_pem(path))[0].fingerprint(hashes.SHA256()).hex(":").upper()


def days_left(stack: Stack) -> float:
    """Return the days until the installed certificate expires; negative afterwards."""
    until = certificates_in(stack.certificate.read_text())[0].not_valid_after_utc
    return (until - datetime.now(UTC)).total_seconds() / 86400


def check(host: str, pair: tuple[str, str], bundle: str, named: Path) -> None:
    """Shake hands in memory as a client does that trusts ``bundle``; raise StackError with its reason if it refuses."""
    until = certificates_in(pair[0])[0].not_valid_after_utc
    if until <= datetime.now(UTC):
        raise StackError(f"the certificate {named} expired on {until:%Y-%m-%d}; get a new one, and name it again")
    try:
        server = server_context(pair)
    except ssl.SSLError as error:
        raise StackError(f"the certificate {named} and its key do not belong together ({error.reason})") from error
    client = ssl.create_default_context(cadata=bundle)
    try:
        shake_hands(client, server, host)
    except ssl.SSLCertVerificationError as error:
        raise StackError(
            f"clients would refuse the certificate {named}: {error.verify_message}; it has to name the host {host}, "
            f"and its file has to hold the whole chain after it, with the authority's own certificate if no browser "
            f"knows it"
        ) from error


def server_context(pair: tuple[str, str]) -> ssl.SSLContext:
    """Return a server's context; Python reads certificates from files only."""
    import tempfile

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as folder:  # mode 0700
        certificate, key = Path(folder) / "certificate", Path(folder) / "key"
        certificate.write_text(pair[0])
        key.write_text(pair[1])
        context.load_cert_chain(certificate, key, password=no_password)
    return context


def no_password() -> str:
    """Refuse a key with a password: nobody is there to type it when the machine starts."""
    raise StackError("the key has a password, which nobody could type when nginx starts; remove it with openssl pkey")


def shake_hands(client: ssl.SSLContext, server: ssl.SSLContext, host: str) -> None:
    """Complete a handshake in memory; raise the client's error if it refuses."""
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(back, there, server_hostname=host),
        server.wrap_bio(there, back, server_side=True),
    ]
    unfinished = ends
    while unfinished:
        unfinished = [end for end in unfinished if not has_finished(end.do_handshake)]


def has_finished(handshake: Callable[[], None]) -> bool:
    """Return whether a handshake has nothing left to do."""
    try:
        handshake()
    except ssl.SSLWantReadError:
        return False
    return True
