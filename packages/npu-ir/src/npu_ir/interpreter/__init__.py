"""To be described: interpreter."""
