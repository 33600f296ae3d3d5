"""TLS of clients: the authorities whose certificates are accepted."""

from __future__ import annotations

import ssl

from ..errors import TidegateError


def client_context(cacert: str | None) -> ssl.SSLContext:
    """Returns a context that trusts the authorities of the system, and those of a PEM file besides."""
    context = ssl.create_default_context()
    if cacert:
        try:
            context.load_verify_locations(cafile=cacert)
        except OSError as error:
            why = "it has no certificates in PEM" if isinstance(error, ssl.SSLError) else error.strerror
            raise TidegateError(f"the file {cacert!r} of TIDEGATE_CACERT cannot be used: {why}") from None
    return context
