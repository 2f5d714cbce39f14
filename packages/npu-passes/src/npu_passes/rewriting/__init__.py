"""To be described: rewriting."""
