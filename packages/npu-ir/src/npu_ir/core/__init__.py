"""To be described: core."""
