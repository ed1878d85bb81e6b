"""An authority of the installation's own, and the certificates that it signs: pure, but for keys
that are drawn.

An authority is trusted for an hour before it signs: a changed Secret reaches those who check its
certificates after a minute. A former one is trusted until it ends. So in a renewal no two processes
refuse each other, and no step has to be remembered: what is due follows from the certificates.

Rejected: Helm's `genCA`, which draws anew at each upgrade; a self-signed certificate for each use,
which all others would have to learn at each renewal.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPrivateKeyTypes
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_DAYS = 3650
LIFE_USED = 2 / 3
"""The part of its life after which a certificate is renewed."""
TRUSTED_BEFORE = timedelta(hours=1)
"""How long an authority is trusted before it signs."""
CLOCK_SKEW = timedelta(minutes=5)
_NAME_CHARACTERS_MAX = 64
_SIGNING = ("key_cert_sign", "crl_sign")
_USES = (
    *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment"),
    *("key_agreement", "encipher_only", "decipher_only", *_SIGNING),
)


class Pair(msgspec.Struct, frozen=True):
    """A certificate and its key, in PEM; never shown."""

    certificate: bytes
    key: bytes

    def __repr__(self) -> str:
        return "Pair(...)"


class Authority(msgspec.Struct, frozen=True):
    """Who signs, and whom to trust."""

    signer: Pair
    trusted: bytes
    """Certificates of all authorities that are to be trusted, the newest one first."""


def new_authority(name: str, now: datetime, before: Authority | None = None) -> Authority:
    """An authority that signs from now on; those before are trusted until they end."""
    key = ec.generate_private_key(ec.SECP256R1())
    # A name of its own: those who check may look for the issuer by its name.
    subject = _name(f"{name} {x509.random_serial_number() >> 128:x}")
    made = (
        _builder(subject, key, now, timedelta(days=AUTHORITY_DAYS))
        .issuer_name(subject)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(*_SIGNING), critical=True)
        .sign(key, hashes.SHA256())
    )
    former = [] if before is None else _certificates(before.trusted)
    known = [made, *(each for each in former if each.not_valid_after_utc > now)]
    return Authority(_pair(made, key), b"".join(map(_pem, known)))


def is_usable(authority: Authority) -> bool:
    """Whether it can sign, and what it signs is trusted."""
    try:
        signer = x509.load_pem_x509_certificate(authority.signer.certificate)
        key = _key(authority)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return False
    return key.public_key() == signer.public_key() and signer in _certificates(authority.trusted)


def authority_is_due(authority: Authority, now: datetime) -> bool:
    """Whether another one is to be made in the place of one that can sign."""
    return _is_due(x509.load_pem_x509_certificate(authority.signer.certificate), now)


def issue(
    authority: Authority, names: Sequence[str], life: timedelta, now: datetime, *, client: bool
) -> Pair:
    """A certificate for these DNS names.

    Args:
        authority: who signs.
        names: the names of a server.
        life: how long it is valid.
        now: the time.
        client: whether it is shown by clients too.
    """
    key, signer = ec.generate_private_key(ec.SECP256R1()), _key(authority)
    issuer = x509.load_pem_x509_certificate(authority.signer.certificate)
    uses = [ExtendedKeyUsageOID.SERVER_AUTH]
    uses += [ExtendedKeyUsageOID.CLIENT_AUTH] if client else []
    its_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer.public_key())  # type: ignore[arg-type]
    made = (
        _builder(_name(names[0]), key, now, life)
        .issuer_name(issuer.subject)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage("digital_signature"), critical=True)
        .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(n) for n in names]), False)
        .add_extension(its_key, critical=False)
        .sign(signer, hashes.SHA256())
    )
    return _pair(made, key)


def certificate_is_due(
    pair: Pair, authority: Authority, names: Sequence[str], now: datetime
) -> bool:
    """Whether another certificate is to be issued in the place of this one."""
    try:
        found = x509.load_pem_x509_certificate(pair.certificate)
        key = serialization.load_pem_private_key(pair.key, None)
        named = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, TypeError, UnsupportedAlgorithm, x509.ExtensionNotFound):
        return True
    known = _certificates(authority.trusted)
    signers = [each for each in known if _signed(found, each)]
    fits = key.public_key() == found.public_key() and bool(signers)
    if not fits or found.not_valid_after_utc <= now:
        return True
    if len(known) > 1 and now < known[0].not_valid_before_utc + CLOCK_SKEW + TRUSTED_BEFORE:
        return False  # not all trust the newest one yet
    right = signers[0] == known[0] and named.get_values_for_type(x509.DNSName) == list(names)
    return not right or _is_due(found, now)


def _is_due(certificate: x509.Certificate, now: datetime) -> bool:
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return now >= begin + (end - begin) * LIFE_USED


def _certificates(pem: bytes) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(pem)
    except ValueError:
        return []


def _signed(certificate: x509.Certificate, by: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(by)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _builder(
    subject: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime, life: timedelta
) -> x509.CertificateBuilder:
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + life)
        .add_extension(identifier, critical=False)
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[-_NAME_CHARACTERS_MAX:])])


def _usage(*uses: str) -> x509.KeyUsage:
    return x509.KeyUsage(**{each: each in uses for each in _USES})


def _key(authority: Authority) -> CertificateIssuerPrivateKeyTypes:
    key = serialization.load_pem_private_key(authority.signer.key, None)
    if not isinstance(key, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey):
        raise ValueError("it is neither a key of RSA nor of an elliptic curve")
    return key


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Pair:
    text = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return Pair(_pem(certificate), text)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
