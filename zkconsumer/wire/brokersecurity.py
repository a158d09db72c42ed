"""BrokerSecurity: encryption and login of a connection: ``security.protocol``, ``ssl.*``, ``sasl.*``."""

from __future__ import annotations

import importlib
import ssl
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Final, Self

from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import ConfigError
from zkconsumer.wire.tlssessions import TlsSessions

_MOST_CONTEXTS: Final = 16
"""How many are kept; a process has one for each cluster."""


@dataclass(frozen=True)
class BrokerSecurity:
    """The properties of the same names; ``repr`` has no secrets. The default is a plain connection."""

    protocol: str = "PLAINTEXT"
    ca_location: str | None = None
    certificate_location: str | None = None
    key_location: str | None = None
    key_password: str | None = field(default=None, repr=False)
    check_hostname: bool = True
    mechanism: str | None = None
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    token_provider: str | None = None
    kerberos_service_name: str = "kafka"

    @classmethod
    def from_config(cls, config: ConsumerConfig) -> Self:
        """Create the settings from the consumer's properties."""
        return cls(
            protocol=config.security_protocol,
            ca_location=config.ssl_ca_location,
            certificate_location=config.ssl_certificate_location,
            key_location=config.ssl_key_location,
            key_password=config.ssl_key_password,
            check_hostname=config.ssl_endpoint_identification_algorithm == "https",
            mechanism=config.sasl_mechanism,
            username=config.sasl_username,
            password=config.sasl_password,
            token=config.sasl_oauthbearer_token,
            token_provider=config.sasl_oauthbearer_token_provider,
            kerberos_service_name=config.sasl_kerberos_service_name,
        )

    @property
    def encrypted(self) -> bool:
        """True for TLS."""
        return self.protocol in ("SSL", "SASL_SSL")

    @property
    def logs_in(self) -> bool:
        """True for SASL."""
        return self.protocol.startswith("SASL_")

    def tls_sessions(self) -> TlsSessions:
        """The context for TLS connections and its sessions, which all connections with these settings share.

        Files are loaded once, and again by the next connection after one of them was replaced; that one resumes no
        session.

        Raises:
            ConfigError: a file cannot be used; the message names its property, but not the key's password.
        """
        files = (self.ca_location, self.certificate_location, self.key_location)
        return _new_sessions(self, tuple(map(_version_of, files)))

    def load_context(self) -> ssl.SSLContext:
        """A new context for TLS connections.

        Raises:
            ConfigError: see :meth:`tls_sessions`.
        """
        context = self._trusting()
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.check_hostname = self.check_hostname
        if self.certificate_location is not None:
            try:
                context.load_cert_chain(self.certificate_location, self.key_location, lambda: self.key_password or "")
            except (OSError, ValueError) as error:  # an SSLError is an OSError
                raise ConfigError(
                    [
                        f"ssl.certificate.location {self.certificate_location} cannot be used with ssl.key.location: "
                        f"{error}; both must be PEM files, and ssl.key.password the password of the key"
                    ]
                ) from None
        return context

    def _trusting(self) -> ssl.SSLContext:
        try:
            return ssl.create_default_context(cafile=self.ca_location)
        except OSError as error:
            reason = f"{error}; it must be a PEM file with the certificates of CAs"
            raise ConfigError([f"ssl.ca.location {self.ca_location} cannot be used: {reason}"]) from None

    def current_token(self) -> str:
        """The token for OAUTHBEARER, from the token provider if there is one.

        Raises:
            ConfigError: the provider cannot be imported or raised an exception.
        """
        if self.token_provider is None:
            return self.token or ""
        module, _, function = self.token_provider.partition(":")
        try:
            return str(getattr(importlib.import_module(module), function)())
        except Exception as error:  # it is the user's code
            where = f"sasl.oauthbearer.token.provider {self.token_provider}"
            raise ConfigError([f"{where} failed to return a token: {type(error).__name__}: {error}"]) from error


@lru_cache(_MOST_CONTEXTS)
def _new_sessions(security: BrokerSecurity, versions: tuple[tuple[int, int, int] | None, ...]) -> TlsSessions:  # noqa: ARG001 - a part of the key
    return TlsSessions(security.load_context())


def _version_of(path: str | None) -> tuple[int, int, int] | None:
    """Changes when the file is replaced or written; None if there is none."""
    if path is None:
        return None
    try:
        status = Path(path).stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


PLAINTEXT = BrokerSecurity()
"""A plain connection, without encryption or login."""
