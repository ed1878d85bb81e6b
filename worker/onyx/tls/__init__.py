"""TLS of every wire: the files of a certificate, and what went wrong in a handshake."""
