"""Backends: lookup by name, and the partitioning of a graph among them."""
