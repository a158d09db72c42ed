import pytest

from zkconsumer.spark.rules.jaas import LoginModule, parse_login_module

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (f'{PLAIN} required username="alice" password="s3cret";', {"username": "alice", "password": "s3cret"}),
        (f"{PLAIN}  Required\n  username=alice\n  password='s;= \"x' ;\n", {"username": "alice", "password": 's;= "x'}),
        (rf'{PLAIN} required password="a\"b\\c\101\n\x";', {"password": 'a"b\\cA\nx'}),
        (f'{PLAIN} required /* first */ username="//a" // rest\n;', {"username": "//a"}),
        (f"{PLAIN} sufficient useKeyTab=true;", {"useKeyTab": "true"}),
        (f"{PLAIN} optional ;", {}),
        (f'{PLAIN} required password="";', {"password": ""}),
    ],
)
def test_a_login_module_and_its_options_are_read_as_in_java(text, options):
    assert parse_login_module(text) == LoginModule("PlainLoginModule", options)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "must end with a semicolon"),
        (f'{PLAIN} required password="s3cret"', "must end with a semicolon"),
        (f"{PLAIN};", "must begin with a login module and required"),
        (f'{PLAIN} username="a";', "must begin with a login module and required"),
        (f'{PLAIN} required username "s3cret";', "must have name=value as its option 1"),
        (f"{PLAIN} required username=;", "must have name=value as its option 1"),
        (f"{PLAIN} required username==;", "must have name=value as its option 1"),
        (f'{PLAIN} required a="b" "s3cret";', "must have name=value as its option 2"),
        (f"{PLAIN} required; {PLAIN} required;", "must have one login module only"),
        (f'{PLAIN} required password="s3cret;', "an open quote"),
        (f"{PLAIN} required password=a@s3cret;", "has a character at position 76 that has to be in quotes"),
    ],
)
def test_a_malformed_value_is_refused_without_showing_it(text, expected):
    with pytest.raises(ValueError, match=expected) as caught:
        parse_login_module(text)
    assert "s3cret" not in str(caught.value)
