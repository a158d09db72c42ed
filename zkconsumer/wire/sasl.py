"""Login to a broker by SASL (KIP-12, KIP-43, KIP-152, KIP-368), with the mechanisms of kafka-python.

A broker since 1.0 takes the mechanism's bytes in SaslAuthenticate requests, and reports why it refuses a login. A
broker of 0.10 or 0.11 takes them bare, each preceded by its length, and closes the connection if it refuses a login. A
login to brokers of 0.9 is not supported.

Kerberos uses the machine's configuration: each connection takes the current ticket from the cache, or gets one by the
client keytab. So a renewed ticket is used; an open connection does not end with its ticket (docs/security.md).
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any, Final, Protocol, TypeVar

from zkconsumer.errors import AuthenticationFailed, ZkConsumerError
from zkconsumer.wire.brokersecurity import BrokerSecurity
from zkconsumer.wire.errorcodes import ErrorCode, error_name
from zkconsumer.wire.fields import Fields, encode_string, reporting_malformed
from zkconsumer.wire.kafkapython import load_kafka_python

T = TypeVar("T")

_HANDSHAKE: Final = 17
_AUTHENTICATE: Final = 36
_AUTHENTICATE_VERSIONS: Final = (0, 1)
_FIRST_WITH_LIFETIME: Final = 1
_MAX_STEPS: Final = 10
_ERROR_CODE: Final = struct.Struct(">h")
_LIFETIME: Final = struct.Struct(">q")
_KERBEROS: Final = "GSSAPI"
_CHECK: Final = "check sasl.mechanism, and sasl.username and sasl.password (or the token)"
_CHECK_KERBEROS: Final = (
    "check with klist that there is a valid ticket (kinit and KRB5CCNAME, or a keytab in KRB5_CLIENT_KTNAME), "
    "that the broker's principal is {service}/{host} (sasl.kerberos.service.name, and the host that it advertises), "
    "and the realm and its KDC in krb5.conf (KRB5_CONFIG)"
)


class Wire(Protocol):
    """The part of :class:`~zkconsumer.wire.connection.BrokerConnection` that a login uses."""

    @property
    def host(self) -> str:
        """Name or address of the broker, as given."""

    def knows(self, api_key: int) -> bool:
        """True if the broker has reported that it knows this API."""

    def version(self, api_key: int, name: str, oldest: int, newest: int) -> int:
        """Newest version of an API that both sides know."""

    def exchange(self, api_key: int, api_version: int, body: bytes, decode: Callable[[memoryview], T]) -> T:
        """Send a request, and return the body of the response, decoded by ``decode``."""

    def exchange_bare(self, token: bytes, *, answered: bool = True) -> bytes:
        """Send bytes preceded only by their length, and return an answer in the same format."""


def new_mechanism(wire: Wire, security: BrokerSecurity) -> Any:
    """Create one of kafka-python's mechanisms, for one login.

    Raises:
        AuthenticationFailed: the mechanism cannot be used: a library or a ticket is missing.
    """
    load_kafka_python()
    from kafka.net.sasl import get_sasl_mechanism
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class Token(AbstractTokenProvider):  # type: ignore[misc]  # the library has no types
        def token(self) -> str:
            return security.current_token()

    logging.getLogger("kafka.net.sasl").setLevel(logging.ERROR)  # it warns about SASL_PLAINTEXT, which the user chose
    try:
        return get_sasl_mechanism(security.mechanism)(
            host=wire.host,
            security_protocol=security.protocol,
            sasl_mechanism=security.mechanism,
            sasl_plain_username=security.username,
            sasl_plain_password=security.password,
            sasl_oauth_token_provider=Token(),
            sasl_kerberos_service_name=security.kerberos_service_name,
        )
    except Exception as error:  # no library for GSSAPI, no ticket
        reason = f"{error}; {_what_to_check(wire, security)}"
        if security.mechanism == _KERBEROS and find_spec("gssapi") is None:
            reason = "the package gssapi is missing: pip install 'zkconsumer[gssapi]'"
        raise AuthenticationFailed(f"{wire}: {security.mechanism} cannot be used: {reason}") from error


def log_in(
    wire: Wire, security: BrokerSecurity, mechanism_of: Callable[[Wire, BrokerSecurity], Any] = new_mechanism
) -> int:
    """Log in to the broker, on a new connection or again.

    Args:
        wire: the connection.
        security: mechanism and credentials.
        mechanism_of: creates the mechanism.

    Returns:
        After how many ms the broker closes the connection unless the client logs in again; 0 for never.

    Raises:
        AuthenticationFailed: the broker refused the login; the message specifies what to check.
        BrokerUnavailable: the connection broke or timed out.
        ProtocolError: the broker does not support SASL, or its answer is malformed.
    """
    mechanism = mechanism_of(wire, security)
    framed = wire.knows(_AUTHENTICATE)
    version = wire.version(_HANDSHAKE, "SaslHandshake", 0, 1 if framed else 0)
    request = encode_string(str(security.mechanism))
    code, mechanisms = wire.exchange(_HANDSHAKE, version, request, partial(_parse_handshake, version))
    if code == ErrorCode.ILLEGAL_SASL_STATE:
        raise AuthenticationFailed(
            f"{wire}: this listener does not support a login; check security.protocol and the port"
        )
    if code:
        offered = ", ".join(mechanisms)
        raise AuthenticationFailed(
            f"{wire}: {error_name(code)}: sasl.mechanism {security.mechanism} is not offered; offered are: {offered}"
        )
    check = _what_to_check(wire, security)
    lifetime_ms = 0

    def exchange(token: bytes, last: bool) -> bytes:
        nonlocal lifetime_ms
        if not framed:
            return wire.exchange_bare(token, answered=not last)
        answer, lifetime_ms = _authenticate(wire, token, check)
        return answer

    try:
        _converse(mechanism, exchange)
    except ZkConsumerError as error:
        if framed or not isinstance(error.__cause__, ConnectionError):
            raise
        raise AuthenticationFailed(f"{wire}: the broker closed the connection during the login; {check}") from error
    except Exception as error:  # raised by the mechanism: the broker's proof is wrong
        raise AuthenticationFailed(f"{wire}: {security.mechanism}: {error}; {check}") from error
    return lifetime_ms


def _converse(mechanism: Any, exchange: Callable[[bytes, bool], bytes]) -> None:
    """Exchange the mechanism's tokens with the broker.

    A mechanism that is done before its token is sent sends the last token (Kerberos: the choice of no security layer,
    RFC 4752, 3.1). A broker does not answer that token if it is bare; a request always has its response.
    """
    for _ in range(_MAX_STEPS):
        token = mechanism.auth_bytes()
        mechanism.receive(exchange(token, mechanism.is_done()))
        if mechanism.is_done():
            break
    if not (mechanism.is_done() and mechanism.is_authenticated()):
        raise ValueError("the broker's answer does not prove that it accepted the login")


def _authenticate(wire: Wire, token: bytes, check: str) -> tuple[bytes, int]:
    version = wire.version(_AUTHENTICATE, "SaslAuthenticate", *_AUTHENTICATE_VERSIONS)
    body = struct.pack(">i", len(token)) + token
    code, message, answer, lifetime_ms = wire.exchange(
        _AUTHENTICATE, version, body, partial(_parse_authenticate, version)
    )
    if code:
        raise AuthenticationFailed(f"{wire}: {message or error_name(code)}; {check}")
    return answer, lifetime_ms


def _what_to_check(wire: Wire, security: BrokerSecurity) -> str:
    if security.mechanism != _KERBEROS:
        return _CHECK
    return _CHECK_KERBEROS.format(service=security.kerberos_service_name, host=wire.host)


def _parse_handshake(version: int, body: memoryview) -> tuple[int, list[str]]:
    """Error code and offered mechanisms of a SaslHandshake response.

    Raises:
        ProtocolError: the response is malformed.
    """
    with reporting_malformed("SaslHandshake", version):
        fields = Fields(body)
        (code,) = fields.take(_ERROR_CODE)
        offered = [fields.text() for _ in range(fields.count())]
        fields.end()
        return code, offered


def _parse_authenticate(version: int, body: memoryview) -> tuple[int, str, bytes, int]:
    """Error code, error message, the broker's token and the session's lifetime of a SaslAuthenticate response.

    Raises:
        ProtocolError: the response is malformed.
    """
    with reporting_malformed("SaslAuthenticate", version):
        fields = Fields(body)
        (code,) = fields.take(_ERROR_CODE)
        message, answer = fields.text(), bytes(fields.data())
        (lifetime_ms,) = fields.take(_LIFETIME) if version >= _FIRST_WITH_LIFETIME else (0,)
        fields.end()
        return code, message, answer, lifetime_ms
