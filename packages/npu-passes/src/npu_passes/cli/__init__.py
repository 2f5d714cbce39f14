"""Commands that npu-passes adds to ``npu``, one module per command."""
