"""To be described: decomposition."""
