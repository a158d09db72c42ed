"""The examples in the documents: they compile, and what they import and call exists."""

import ast
import re
from pathlib import Path

import pytest

import zkconsumer
from zkconsumer import ConsumerConnector, MessageStream, SimpleConsumer

ROOT = Path(__file__).parents[2]
OWNERS = {"connector": ConsumerConnector, "simple": SimpleConsumer, "stream": MessageStream, "zkconsumer": zkconsumer}


@pytest.mark.parametrize("document", ["README.md", "docs/streams.md"])
def test_examples_name_what_exists(document):
    examples = re.findall(r"^```python\n(.*?)^```", (ROOT / document).read_text(), re.MULTILINE | re.DOTALL)
    assert examples
    for node in (node for example in examples for node in ast.walk(ast.parse(example))):
        match node:
            case ast.ImportFrom(module="zkconsumer", names=names):
                assert [name.name for name in names if not hasattr(zkconsumer, name.name)] == []
            case ast.Attribute(value=ast.Name(id=owner), attr=name) if owner in OWNERS:
                assert hasattr(OWNERS[owner], name), f"{document}: {owner}.{name}"
