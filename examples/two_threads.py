"""Read a topic with two threads: ``python two_threads.py consumer.properties TOPIC POISON_FILE``."""

import logging
import os
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from zkconsumer import ConsumerConfig, ConsumerConnector, MembershipLost, RetriableError

ENDING = {signal.SIGTERM, signal.SIGINT}


def process(message):
    print(f"{int(message.value)}\n", end="", flush=True)  # one write: another thread prints too


def read(stream, poison):
    try:
        for count, message in enumerate(stream, start=1):
            try:
                process(message)
            except (TypeError, ValueError) as error:  # a poison record: keep it, and continue
                poison.write(f"{message.topic} {message.partition} {message.offset} {error}\n")
                poison.flush()
            stream.done(message)  # from now on commits cover it
            if count % 100 == 0:
                try:
                    stream.commit()
                except (RetriableError, MembershipLost) as error:
                    logging.warning("not committed, the next commit covers it: %s", error)
    finally:
        os.kill(os.getpid(), signal.SIGTERM)  # a thread that failed ends the program


def main(properties, topic, poison_file):
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)  # before threads start: only sigwait gets them
    config = ConsumerConfig.from_properties(
        properties, commit_on="done", auto_commit_enable=True, consumer_timeout_ms=-1
    )
    with Path(poison_file).open("a") as poison, ConsumerConnector(config) as connector:  # leaving it commits
        streams = connector.create_message_streams({topic: 2})[topic]
        with ThreadPoolExecutor(2) as threads:
            readers = [threads.submit(read, stream, poison) for stream in streams]
            signal.sigwait(ENDING)
            connector.end_streams()  # each thread ends after the record that it has
    for reader in readers:
        reader.result()  # raises what ended it


if __name__ == "__main__":
    main(*sys.argv[1:])
