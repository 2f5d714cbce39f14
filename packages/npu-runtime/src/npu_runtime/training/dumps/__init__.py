"""A step at each stage: lowered to ops of backends, as text and as JSON."""
