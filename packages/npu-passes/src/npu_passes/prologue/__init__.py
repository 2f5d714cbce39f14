"""To be described: prologue."""
