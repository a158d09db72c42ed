"""Authorities and the certificates that they sign, as PEM files: keystores of brokers, certificates of clients."""

from pathlib import Path
from typing import Any

import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)


class Authority:
    """Signs certificates; ``location`` is the file with its own. Files are put into ``directory``."""

    def __init__(self, directory: Path, name: str) -> None:
        self._ca = trustme.CA()
        self._directory = directory
        self._name = name
        self.location = str(directory / f"{name}.pem")
        self._ca.cert_pem.write_to_path(self.location)

    def broker_properties(self, host: str) -> dict[str, str]:
        """What a broker needs to show a certificate for ``host``."""
        certificate, key = self._issue(host, NoEncryption())
        keystore = self._directory / f"{self._name}-{host}.pem"
        keystore.write_bytes(key + certificate)
        return {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(keystore)}

    def client_settings(self, name: str, password: str | None = None, **more: Any) -> dict[str, str]:
        """What a client needs to show a certificate, for ``ConsumerConfig``; a password encrypts the key.

        Args:
            name: of the client, for the files.
            password: of the key; the settings contain it, too.
            more: arguments of trustme's ``issue_cert``.
        """
        encryption = NoEncryption() if password is None else BestAvailableEncryption(password.encode())
        certificate, key = self._issue(f"{name}.example", encryption, **more)
        certificate_file, key_file = (self._directory / f"{self._name}-{name}.{kind}" for kind in ("pem", "key"))
        certificate_file.write_bytes(certificate)
        key_file.write_bytes(key)
        settings = {"ssl_certificate_location": str(certificate_file), "ssl_key_location": str(key_file)}
        return settings if password is None else {**settings, "ssl_key_password": password}

    def _issue(self, name: str, encryption: KeySerializationEncryption, **more: Any) -> tuple[bytes, bytes]:
        """Certificate with its chain, and key, in the format that Kafka takes (PKCS 8)."""
        issued = self._ca.issue_cert(name, **more)
        key = load_pem_private_key(issued.private_key_pem.bytes(), None)
        chain = b"".join(blob.bytes() for blob in issued.cert_chain_pems)
        return chain, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)
