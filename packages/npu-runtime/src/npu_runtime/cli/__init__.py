"""The commands that npu-runtime adds to ``npu``; one module per command."""
