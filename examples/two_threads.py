"""Read a topic with two threads: ``python two_threads.py consumer.properties TOPIC POISON_FILE``."""

import signal
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from zkconsumer import ConsumerConfig, ConsumerConnector, MembershipLost, RetriableError


def read(stream, poison):
    for count, message in enumerate(stream, start=1):
        try:
            print(f"{int(message.value)}\n", end="", flush=True)  # in one write: another thread prints too
        except (TypeError, ValueError) as error:  # a poison record: keep it, and continue
            poison.write(f"{message.topic} {message.partition} {message.offset} {error}\n")
        stream.done(message)  # from now on commits cover it
        if count % 100 == 0:
            try:
                stream.commit()
            except (RetriableError, MembershipLost) as error:
                print("not committed, the next commit covers it:", error, file=sys.stderr)


properties, topic, poison_file = sys.argv[1:]
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, lambda *_: sys.exit())  # raised in the main thread, which has no record
config = ConsumerConfig.from_properties(properties, commit_on="done", auto_commit_enable=True, consumer_timeout_ms=-1)
with Path(poison_file).open("a", buffering=1) as poison, ConsumerConnector(config) as connector:  # leaving it commits
    streams = connector.create_message_streams({topic: 2})[topic]
    with ThreadPoolExecutor(2) as threads:
        try:
            for reader in as_completed([threads.submit(read, stream, poison) for stream in streams]):
                reader.result()  # raises what has ended a thread
        finally:
            connector.end_streams()  # each thread ends after the record that it has
