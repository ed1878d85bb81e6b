"""Which certificates of servers a client takes: the same with each Python.

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
