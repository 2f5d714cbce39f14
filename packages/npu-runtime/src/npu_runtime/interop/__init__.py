"""To be described: interop."""
