"""A module per op."""
