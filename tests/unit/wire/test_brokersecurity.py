"""BrokerSecurity: what connections with the same settings share."""

import shutil
import ssl

import pytest

from tests.fixtures.certificates import Authority
from zkconsumer.errors import ConfigError
from zkconsumer.wire.brokersecurity import BrokerSecurity


def subjects(context):
    return [name["subject"] for name in context.get_ca_certs()]


def test_files_are_loaded_once_and_again_after_one_was_replaced(tmp_path):
    authority, other = Authority(tmp_path, "ca"), Authority(tmp_path, "other")
    owned = authority.client_settings("client")

    def sessions():
        return BrokerSecurity(
            "SSL", authority.location, owned["ssl_certificate_location"], owned["ssl_key_location"]
        ).tls_sessions()

    first = sessions()
    assert sessions() is first
    shutil.copy(other.location, authority.location)
    assert subjects(sessions().context) != subjects(first.context)
    assert sessions() is sessions()


def test_other_settings_get_another_context(tmp_path):
    location = Authority(tmp_path, "ca").location
    checks, trusts = (
        BrokerSecurity("SSL", location, check_hostname=each).tls_sessions().context for each in (True, False)
    )
    assert (checks.check_hostname, trusts.check_hostname) == (True, False)
    assert checks.verify_mode is trusts.verify_mode is ssl.CERT_REQUIRED


def test_a_file_that_could_not_be_loaded_is_loaded_when_it_is_there(tmp_path):
    security = BrokerSecurity("SSL", str(tmp_path / "ca.pem"))
    with pytest.raises(ConfigError, match=r"ssl\.ca\.location .* cannot be used"):
        security.tls_sessions()
    Authority(tmp_path, "ca")
    assert security.tls_sessions().context.get_ca_certs()
