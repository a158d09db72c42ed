"""Makes the pages of documents that are generated from the package (`make docs`)."""
