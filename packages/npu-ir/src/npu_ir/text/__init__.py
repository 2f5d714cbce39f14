"""The text form of a graph: readable, deterministic, and parsed to an equal graph."""
