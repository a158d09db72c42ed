"""What operators see and change of groups."""
