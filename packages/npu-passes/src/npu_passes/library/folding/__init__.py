"""To be described: folding."""
