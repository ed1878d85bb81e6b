"""What clients of servers of others trust, and show: the same with each Python.

Since 3.13 the default context of Python refuses authorities that do not say what their key is for,
as many of those do that people draw for themselves (`openssl req -x509`), and some of Kubernetes.
curl, kubectl, the JVM and Python before take them. What is signed by whom is looked at as before.
"""

from __future__ import annotations

import ssl

STRICT = ssl.VerifyFlags.VERIFY_X509_STRICT


def lenient(context: ssl.SSLContext) -> ssl.SSLContext:
    """A context that asks no more of an authority than Python before 3.13."""
    context.verify_flags &= ~STRICT
    return context


def client_context(ca: str | None, certificate: str | None, key: str | None) -> ssl.SSLContext:
    """The context of a client.

    Args:
        ca: file with the authorities that it trusts; None: those of the system.
        certificate: file with what it shows; None: nothing.
        key: file with the key to that; None: it is in the same file.

    Raises:
        OSError, ValueError: a file is not there, or is none that TLS takes; ssl.SSLError is one.
    """
    made = lenient(ssl.create_default_context(cafile=ca))
    if certificate is not None:
        # Without a password function OpenSSL would ask at a terminal.
        made.load_cert_chain(certificate, key, password=lambda: "")
    return made
