"""To be described: symbolic."""
