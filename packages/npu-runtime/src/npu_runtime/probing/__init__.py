"""To be described: probing."""
