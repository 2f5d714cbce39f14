"""To be described: fusion."""
