"""To be described: ops."""
