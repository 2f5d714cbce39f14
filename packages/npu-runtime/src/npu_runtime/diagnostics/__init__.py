"""To be described: diagnostics."""
