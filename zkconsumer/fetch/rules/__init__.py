"""What the control plane asks of fetching, and when a stream is idle."""
