"""To be described: plugins."""
