"""To be described: graph."""
