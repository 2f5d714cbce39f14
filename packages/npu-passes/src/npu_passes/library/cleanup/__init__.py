"""To be described: cleanup."""
