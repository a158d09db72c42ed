"""The web page, API and exporter of ``zkconsumer serve``. It reads, and writes nothing to ZooKeeper."""
