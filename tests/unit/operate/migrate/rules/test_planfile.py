"""Files of plans: what is written is read again, and other files are refused."""

import hashlib
import json
from dataclasses import replace

import pytest

from tests.fixtures.migrationplans import SEEN, SOURCE, TARGET
from zkconsumer.errors import ZkConsumerError
from zkconsumer.operate.migrate.rules.migrationend import End
from zkconsumer.operate.migrate.rules.migrationplan import make_plan
from zkconsumer.operate.migrate.rules.planfile import decode_plan, encode_plan, plan_digest

PLAN = make_plan(SOURCE, TARGET, "h:1/kafka", SEEN, missing="fail", retention_ms=5000, now_ms=1)


def signed(document):
    """As a person could do it who wants to: with a digest that fits."""
    document = {name: value for name, value in document.items() if name != "sha256"}
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return json.dumps({**document, "sha256": hashlib.sha256(text.encode()).hexdigest()}).encode()


@pytest.mark.parametrize(
    "plan",
    [
        PLAN,
        replace(PLAN, source=TARGET, target=End("zookeeper", "a@b", "h:1,i:2/x")),
        replace(PLAN, retention_ms=None, partitions=(), warnings=("a", "b")),
        replace(PLAN, partitions=tuple(replace(row, source=None, new=None) for row in PLAN.partitions)),
    ],
)
def test_a_plan_is_read_as_it_was_written(plan):
    text = encode_plan(plan)
    assert decode_plan("p", text.encode()) == plan
    assert json.loads(text)["sha256"] == plan_digest(plan)


def test_a_partition_is_a_line():
    assert sum('"new_offset"' in line for line in encode_plan(PLAN).splitlines()) == 2


@pytest.mark.parametrize(
    ("former", "new"),
    [('"new_offset": 50', '"new_offset": 51'), ("/kafka", "/other"), ('"holds": true', '"holds": false')],
)
def test_an_edited_plan_is_refused(former, new):
    text = encode_plan(PLAN)
    assert former in text
    with pytest.raises(ZkConsumerError, match="was edited"):
        decode_plan("p", text.replace(former, new, 1).encode())


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b"null", b"\xff", b'{"kind": "zkconsumer snapshot"}'])
def test_another_file_is_refused(content):
    with pytest.raises(ZkConsumerError, match="is not a migration plan"):
        decode_plan("p", content)


@pytest.mark.parametrize(
    "change",
    [
        {"source": "kafka:g"},
        {"missing": "none"},
        {"extra": 1},
        {"partitions": [{}]},
        {"created_ms": "x"},
        {"retention_ms": 1.5},
    ],
)
def test_a_plan_that_no_release_writes_is_refused(change):
    with pytest.raises(ZkConsumerError, match="is not a migration plan"):
        decode_plan("p", signed({**json.loads(encode_plan(PLAN)), **change}))


@pytest.mark.parametrize("change", [{"version": 2}, {"kind": "zkconsumer snapshot"}])
def test_another_kind_or_version_is_named(change):
    with pytest.raises(ZkConsumerError, match="another kind or version"):
        decode_plan("p", signed({**json.loads(encode_plan(PLAN)), **change}))


def test_a_plan_has_a_version_and_its_topics_in_order():
    plan = replace(PLAN, identities={"u": 5, "t": "id"})
    document = json.loads(encode_plan(plan))
    assert document["version"] == 1
    assert list(document["identities"].items()) == [("t", "id"), ("u", 5)]
    assert decode_plan("p", encode_plan(plan).encode()) == plan
