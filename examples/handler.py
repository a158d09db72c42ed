"""The same with ``run``: ``python handler.py consumer.properties TOPIC POISON_FILE``."""

import sys
from pathlib import Path

from zkconsumer import ConsumerConfig, Retry, run


def handle(message):
    print(f"{int(message.value)}\n", end="", flush=True)  # one write: another thread prints too


def main(properties, topic, poison_file):
    def keep(message, error):
        with Path(poison_file).open("a") as poison:
            poison.write(f"{message.topic} {message.partition} {message.offset} {error}\n")

    config = ConsumerConfig.from_properties(properties)
    run(handle, config, [topic], workers=2, retry=Retry(attempts=3, backoff_s=0.1), dead_letter=keep)


if __name__ == "__main__":
    main(*sys.argv[1:])
