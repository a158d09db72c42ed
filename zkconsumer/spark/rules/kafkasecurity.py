"""The security options of Spark's own Kafka source, as properties of this consumer.

Pure: files are read by :mod:`zkconsumer.spark.javastores`.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from zkconsumer.spark.rules.jaas import LoginModule, parse_login_module

_SAME: Final = {
    f"kafka.{name}": name
    for name in (
        "security.protocol",
        "sasl.mechanism",
        "sasl.kerberos.service.name",
        "ssl.endpoint.identification.algorithm",
        "ssl.key.password",
    )
}
_JAAS: Final = "kafka.sasl.jaas.config"
_STORES: Final = {"ssl.truststore": "ssl.ca.location", "ssl.keystore": "ssl.certificate.location"}
"""What a store holds, as the property for a PEM file of it."""

UNDERSTOOD: Final = frozenset(
    {*_SAME, _JAAS, *(f"kafka.{store}.{part}" for store in _STORES for part in ("location", "password", "type"))}
)
"""The options that this source understands under their names in Spark's Kafka source."""


@dataclass(frozen=True, slots=True)
class JavaStore:
    """A key store or trust store of Java, and the password that opens it."""

    location: str
    password: str | None = field(default=None, repr=False)


class KafkaSecurity(NamedTuple):
    """What the options say.

    Attributes:
        properties: the consumer's properties.
        trust: the store with the certificates of authorities; None if there is none that has to be converted to PEM.
        key: likewise, with this client's certificate and key.
        violations: options that cannot be used.
    """

    properties: Mapping[str, str]
    trust: JavaStore | None
    key: JavaStore | None
    violations: list[str]

    @property
    def replaced(self) -> Set[str]:
        """The consumer's properties that the options specify."""
        stores = zip(_STORES.values(), (self.trust, self.key), strict=True)
        return self.properties.keys() | {name for name, store in stores if store is not None}


def read_security(given: Mapping[str, str]) -> KafkaSecurity:
    """Translate the options among :data:`UNDERSTOOD`; ``given`` has their names in lower case."""
    properties = {_SAME[name]: value for name, value in given.items() if name in _SAME}
    if properties.get("ssl.endpoint.identification.algorithm") == "":
        properties["ssl.endpoint.identification.algorithm"] = "none"
    violations: list[str] = []
    if _JAAS in given:
        try:
            properties = {**_login(parse_login_module(given[_JAAS])), **properties}
        except ValueError as error:
            violations.append(f"{_JAAS} {error}")
    for name, of_pem in _STORES.items():
        if f"kafka.{name}.location" in given and _is_pem(given, name):
            properties[of_pem] = given[f"kafka.{name}.location"]
    trust, key = (_java_store(given, name) for name in _STORES)
    return KafkaSecurity(properties, trust, key, violations)


def _is_pem(given: Mapping[str, str], name: str) -> bool:
    return given.get(f"kafka.{name}.type", "").strip().upper() == "PEM"


def _java_store(given: Mapping[str, str], name: str) -> JavaStore | None:
    location = given.get(f"kafka.{name}.location")
    if location is None or _is_pem(given, name):
        return None
    return JavaStore(location, given.get(f"kafka.{name}.password"))


def _login(module: LoginModule) -> Mapping[str, str]:
    """The properties of a login module; ValueError if it has no equivalent."""
    options = module.options
    if module.name in ("PlainLoginModule", "ScramLoginModule"):
        if "tokenauth" in options:
            raise ValueError("has tokenauth: no delegation tokens are used here; give a user and a password")
        if not options.keys() >= {"username", "password"}:
            raise ValueError("must have username and password")
        user = {"sasl.username": options["username"], "sasl.password": options["password"]}
        return user if module.name == "ScramLoginModule" else {"sasl.mechanism": "PLAIN", **user}
    if module.name == "OAuthBearerLoginModule":
        return {"sasl.mechanism": "OAUTHBEARER"}
    if module.name == "Krb5LoginModule":
        for option, variable in (("keyTab", "KRB5_CLIENT_KTNAME"), ("ticketCache", "KRB5CCNAME")):
            if option in options:
                raise ValueError(
                    f"has {option}, which Kerberos takes from the environment here: set {variable}={options[option]} "
                    f"for the driver, spark.executorEnv.{variable} for executors, and remove {option} from the value"
                )
        service = {"sasl.kerberos.service.name": options["serviceName"]} if "serviceName" in options else {}
        return {"sasl.mechanism": "GSSAPI", **service}
    raise ValueError(f"has {module.name}, which is Java code; docs/security.md lists what can be used in its place")
