"""``python -m zkconsumer`` is the ``zkconsumer`` command."""

from zkconsumer.cli.main import main

if __name__ == "__main__":
    main()
