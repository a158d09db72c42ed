"""What is known of each request's throttle time."""

import ast
import importlib
import re

import pytest

from tests.fixtures.documents import ROOT
from zkconsumer.wire.apiversions import MUTED_SINCE, OFFSET_DELETE, WITHOUT_THROTTLE, read_throttle_ms
from zkconsumer.wire.kafkapython import load_kafka_python

SENDING = {"send", "exchange", "version", "knows"}
MAY_SEND = re.compile(r"from kafka\.protocol|\.(send|exchange|version|knows)\(")


def sent_requests():
    """API keys of all requests that the package can send: as a class of kafka-python, or as a number."""
    load_kafka_python()
    for path in sorted((ROOT / "zkconsumer").rglob("*.py")):
        text = path.read_text()
        if not MAY_SEND.search(text):
            continue
        tree = ast.parse(text)
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kafka.protocol"):
                messages = importlib.import_module(node.module)
                yield from (
                    getattr(messages, alias.name).API_KEY for alias in node.names if alias.name.endswith("Request")
                )
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in SENDING:
                api = node.args[0] if node.args else None
                if isinstance(api, ast.Name) and api.id.isupper():
                    value = getattr(importlib.import_module(module), api.id, None)
                    if isinstance(value, int):
                        yield value


def test_it_is_known_of_each_request_whether_it_mutes():
    sent = set(sent_requests())
    assert len(sent) > 20
    assert sent == set(MUTED_SINCE) | WITHOUT_THROTTLE


@pytest.mark.parametrize(
    ("api_key", "version", "answer", "throttle_ms"),
    [
        (3, 6, b"\0\0\0\5\0\0", 5),
        (3, 5, b"\0\0\0\5\0\0", 0),
        (OFFSET_DELETE, 0, b"\0\1\0\0\0\5", 5),
        (OFFSET_DELETE, 0, b"\0\1\0\0\0", 0),
        (36, 2, b"\0\0\0\5\0\0", 0),
    ],
)
def test_the_throttle_time_of_an_answer(api_key, version, answer, throttle_ms):
    assert read_throttle_ms(api_key, version, memoryview(answer)) == throttle_ms
