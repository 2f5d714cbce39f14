"""Native kernels, programs and graphs for accelerators."""

__version__ = "0.1.0"
