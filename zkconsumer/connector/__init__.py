"""The consumer: a group member (control plane) joined to local fetchers and streams (data plane)."""
