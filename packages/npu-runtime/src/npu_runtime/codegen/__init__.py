"""To be described: codegen."""
