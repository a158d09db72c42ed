"""TLS and logins of the connection to ZooKeeper, and the ACLs of this consumer's znodes (jvm-consumer.md#acls)."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

from zkconsumer.config.consumerconfig import ConsumerConfig
from zkconsumer.errors import ConfigError


def client_arguments(config: ConsumerConfig) -> dict[str, Any]:
    """Keyword arguments for kazoo's client: authentication and TLS.

    Raises:
        ConfigError: SASL is configured and a package that it needs is missing.
    """
    arguments: dict[str, Any] = {}
    if config.zookeeper_digest is not None:
        arguments["auth_data"] = [("digest", config.zookeeper_digest)]
    if config.zookeeper_sasl_mechanism is not None:
        arguments["sasl_options"] = _sasl_options(config)
    if config.zookeeper_ssl_client_enable:
        arguments |= {
            "use_ssl": True,
            "ca": config.zookeeper_ssl_ca_location,
            "certfile": config.zookeeper_ssl_certificate_location,
            "keyfile": config.zookeeper_ssl_key_location,
            "keyfile_password": config.zookeeper_ssl_key_password,
            "check_hostname": config.zookeeper_ssl_check_hostname,
        }
    return arguments


def _sasl_options(config: ConsumerConfig) -> dict[str, Any]:
    if find_spec("puresasl") is None:  # kazoo would look for it when it connects, where no caller gets the error
        extra = "gssapi-zookeeper" if config.zookeeper_sasl_mechanism == "GSSAPI" else "sasl"
        raise ConfigError(f"zookeeper.sasl.mechanism needs the package pure-sasl: pip install 'zkconsumer[{extra}]'")
    if config.zookeeper_sasl_mechanism == "GSSAPI" and find_spec("kerberos") is None:
        raise ConfigError(
            "zookeeper.sasl.mechanism GSSAPI needs the package kerberos: pip install 'zkconsumer[gssapi-zookeeper]'"
        )
    options = {
        "mechanism": config.zookeeper_sasl_mechanism,
        "username": config.zookeeper_sasl_username,
        "password": config.zookeeper_sasl_password,
    }
    return {name: value for name, value in options.items() if value is not None}


def open_acl() -> list[Any]:
    """The ACL that allows all clients everything: for registrations, and for the rest unless ``zookeeper.set.acl``."""
    return list(OPEN_ACL_UNSAFE)


def owned_acl(config: ConsumerConfig) -> list[Any]:
    """The ACL of owner and offset znodes: with ``zookeeper.set.acl`` the creator may do all, others may read."""
    return [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE] if config.zookeeper_set_acl else open_acl()
