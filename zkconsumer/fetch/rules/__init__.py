"""What the control plane asks of fetching; a stream's errors; when it is idle, and when its queue is filled up."""
