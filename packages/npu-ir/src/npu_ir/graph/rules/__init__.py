"""To be described: rules."""
