"""The text form of a graph: readable, deterministic, and parsed back to an equal graph."""
