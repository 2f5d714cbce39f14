"""To be described: executor."""
