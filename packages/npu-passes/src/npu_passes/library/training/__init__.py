"""To be described: training."""
