"""To be described: lowering."""
