"""The site and the rehearsal of a release."""
