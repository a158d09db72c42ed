"""PEM files of Java's trust stores and key stores: written once by each process that connects to brokers."""

from __future__ import annotations

import atexit
import secrets
import ssl
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from zkconsumer.errors import ConfigError
from zkconsumer.process.stalefiles import OwnedDirectory
from zkconsumer.spark.rules.kafkasecurity import JavaStore
from zkconsumer.spark.rules.options import SourceOptions

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

_JKS = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
"""How files of the types JKS and JCEKS begin. Java reads PKCS12 under both names, too."""


class _Contents(NamedTuple):
    """The certificates of a store, in DER, and its key; those of the key's chain first."""

    certificates: Sequence[bytes]
    key: PrivateKeyTypes | None


def with_pem_files(options: SourceOptions) -> SourceOptions:
    """The options with PEM files in place of Java's stores; the same object if there are none.

    Raises:
        ConfigError: a store cannot be read; with the command that writes a PEM file of it.
    """
    if options.trust is None and options.key is None:
        return options
    properties = _properties(options.trust, options.key, options.config.ssl_key_password)
    return replace(options, config=options.config.replace(**properties), trust=None, key=None)


@cache
def _directory() -> Path:
    directory = OwnedDirectory("zkconsumer-pem-")
    atexit.register(directory.remove)
    return directory.path


@cache  # so that the options of all tasks in a process are equal, and share connections
def _properties(trust: JavaStore | None, key: JavaStore | None, key_password: str | None) -> dict[str, Any]:
    properties = {}
    if trust is not None:
        properties["ssl.ca.location"] = _write("ca", _pem(_read(trust, "truststore", None).certificates))
    if key is not None:
        contents = _read(key, "keystore", key.password if key_password is None else key_password)
        assert contents.key is not None  # or reading it has failed
        # Whoever reads the file has the key only with the password, which is in memory.
        properties["ssl.key.password"] = secret = secrets.token_urlsafe()
        pem = _pem(contents.certificates) + _encrypted(contents.key, secret)
        properties["ssl.certificate.location"] = _write("client", pem)
    return properties


def _write(name: str, pem: str) -> str:
    path = _directory() / f"{name}-{secrets.token_hex(8)}.pem"
    path.write_text(pem, encoding="ascii")
    return str(path)


def _pem(certificates: Sequence[bytes]) -> str:
    return "".join(map(ssl.DER_cert_to_PEM_cert, certificates))


def _encrypted(key: PrivateKeyTypes, password: str) -> str:
    from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat

    encryption = BestAvailableEncryption(password.encode())
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption).decode()


def _read(store: JavaStore, kind: str, key_password: str | None) -> _Contents:
    try:
        data = Path(store.location).read_bytes()
        read = _read_jks if data.startswith(_JKS) else _read_pkcs12
        contents = read(data, store.password, key_password)
        missing = (
            "certificate" if not contents.certificates else "key" if kind == "keystore" and not contents.key else ""
        )
        if missing:
            raise ValueError(f"it has no {missing}")
    except ImportError as error:
        raise _refusal(store, kind, f"the extra keystores is not installed ({error})") from None
    except Exception as error:  # noqa: BLE001  each library has its own
        raise _refusal(store, kind, str(error) or type(error).__name__) from None
    return contents


def _refusal(store: JavaStore, kind: str, reason: str) -> ConfigError:
    path = store.location
    remedy = (
        f"keytool -list -rfc -keystore {path} > ca.pem, and set ssl.ca.location=ca.pem"
        if kind == "truststore"
        else f"keytool -importkeystore -srckeystore {path} -destkeystore client.p12 -deststoretype PKCS12; openssl "
        "pkcs12 -in client.p12 -out client.pem, and set ssl.certificate.location=client.pem and ssl.key.password"
    )
    return ConfigError(
        [
            f"kafka.ssl.{kind}.location {path} cannot be read: {reason}. Check kafka.ssl.{kind}.password, or write a "
            f"PEM file: {remedy}"
        ]
    )


def _read_jks(data: bytes, password: str | None, key_password: str | None) -> _Contents:
    import jks
    from cryptography.hazmat.primitives.serialization import load_der_private_key

    store = jks.KeyStore.loads(data, password, try_decrypt_keys=False)
    if key_password is None:
        return _Contents([entry.cert for entry in store.certs.values()], None)
    for entry in store.private_keys.values():
        entry.decrypt(key_password)
        key = load_der_private_key(entry.pkey_pkcs8, None)
        return _Contents([certificate for _, certificate in entry.cert_chain], key)
    return _Contents([], None)


def _read_pkcs12(data: bytes, password: str | None, _key_password: str | None) -> _Contents:
    from cryptography.hazmat.primitives.serialization import Encoding
    from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12

    store = load_pkcs12(data, None if password is None else password.encode())
    entries = [store.cert, *store.additional_certs]
    certificates = [entry.certificate.public_bytes(Encoding.DER) for entry in entries if entry is not None]
    return _Contents(certificates, store.key)
