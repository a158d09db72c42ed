import json
import pickle

import pytest

from zkconsumer.connector.decoder import decoded_message
from zkconsumer.decode.messages import build
from zkconsumer.model import Message

RAW = Message("t", 3, 7, 1000, 0, b"k", b'{"a": 1}', (("h", b"x"),))


def decoded(key=None, value=None, raw=RAW):
    return decoded_message(key, value)._make(raw)


def test_each_side_has_its_decoder_or_none():
    assert (decoded(bytes.decode).key, decoded(bytes.decode).value) == ("k", b'{"a": 1}')
    assert (decoded(None, json.loads).key, decoded(None, json.loads).value) == (b"k", {"a": 1})


def test_null_is_none_and_no_decoder_is_asked():
    message = decoded(pytest.fail, pytest.fail, RAW._replace(key=None, value=None))
    assert message.key is None
    assert message.value is None


def test_a_lambda_is_not_taken_for_a_method():
    assert decoded(lambda data: data * 2).key == b"kk"


def test_a_decoded_message_is_a_tuple_of_its_bytes():
    message = decoded(bytes.decode, json.loads)
    assert message == RAW
    assert hash(message) == hash(RAW)
    assert "value=b'{\"a\": 1}'" in repr(message)
    topic, *_, value, _ = message
    assert (topic, value) == ("t", RAW.value)
    assert message._replace(offset=8).key == "k"


def test_a_decoded_message_is_pickled_as_a_message():
    copy = pickle.loads(pickle.dumps(decoded(lambda data: data)))
    assert type(copy) is Message
    assert copy == RAW


def test_messages_of_a_batch_are_of_the_class_asked_for(queue_chunk):
    kind = decoded_message(None, bytes.decode)
    messages = list(build(kind, queue_chunk.batch))
    assert {type(message) for message in messages} == {kind}
    assert [message.value for message in messages] == ["0..........", "1.........."]


@pytest.fixture
def queue_chunk():
    from tests.fixtures.chunks import make_chunk, make_info, make_queue

    return make_chunk(make_info(make_queue()), 0, 2)
