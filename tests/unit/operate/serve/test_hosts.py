"""Addresses to bind, and names in requests."""

import pytest

from zkconsumer.operate.serve.hosts import Address, is_allowed_host, is_loopback, parse_address


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:8087", Address("127.0.0.1", 8087)),
        ("localhost:0", Address("localhost", 0)),
        ("[::1]:8087", Address("::1", 8087)),
    ],
)
def test_an_address_is_parsed_and_printed(text, address):
    assert parse_address(text) == address
    assert str(address) == text


@pytest.mark.parametrize("text", ["", "8087", ":8087", "localhost", "localhost:", "h:65536", "::1:80", "h:-1", "a/b:1"])
def test_another_text_is_no_address(text):
    with pytest.raises(ValueError, match="HOST:PORT"):
        parse_address(text)


def test_loopback_addresses():
    assert is_loopback(["127.0.0.1", "::1", "127.1.2.3"])
    assert not is_loopback(["127.0.0.1", "10.0.0.1"])
    assert not is_loopback(["0.0.0.0"])
    assert not is_loopback(["fe80::1%eth0"])
    assert not is_loopback([])


@pytest.mark.parametrize(
    "header", ["localhost:8087", "LOCALHOST", "127.0.0.1:1", "10.0.0.1", "[::1]:8087", "[fe80::1]"]
)
def test_known_names_and_addresses_are_allowed(header):
    assert is_allowed_host(header, {"localhost"})


@pytest.mark.parametrize(
    "header", ["", "evil.example", "localhost.evil.example:8087", "localhost:x", "[::1", "a:1:2", "[x]"]
)
def test_any_other_host_is_refused(header):
    assert not is_allowed_host(header, {"localhost"})
