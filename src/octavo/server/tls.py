"""TLS: the certificate that the server shows, and whether clients must show one."""

import ssl

from octavo.config import ServerConfig
from octavo.errors import ConfigError


def tls_context(config: ServerConfig) -> ssl.SSLContext | None:
    """The context of a server's sockets, TLS 1.2 or newer; None without a certificate. Raises ConfigError."""
    if config.ssl_certfile is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(config.ssl_certfile, config.ssl_keyfile, _no_password)
    except (OSError, ValueError) as error:  # SSLError is an OSError
        key = config.ssl_keyfile or config.ssl_certfile
        raise ConfigError(
            f"ssl_certfile {config.ssl_certfile} with ssl_keyfile {key}: {error}"
        ) from error
    if config.ssl_ca_certs is not None:
        try:
            context.load_verify_locations(config.ssl_ca_certs)
        except (OSError, ValueError) as error:
            raise ConfigError(f"ssl_ca_certs {config.ssl_ca_certs}: {error}") from error
    context.verify_mode = ssl.VerifyMode(config.ssl_cert_reqs)
    return context


def _no_password() -> str:
    # Without it the library asks on the terminal, where a service has nobody to answer.
    raise ValueError("the key has a password; give one that has none")
