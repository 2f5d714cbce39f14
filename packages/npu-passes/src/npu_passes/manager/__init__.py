"""To be described: manager."""
