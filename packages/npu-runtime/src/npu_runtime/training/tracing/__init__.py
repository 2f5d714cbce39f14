"""From a step function, as one writes it for PyTorch, to a graph."""
