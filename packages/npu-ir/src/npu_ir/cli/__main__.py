"""``python -m npu_ir.cli``: the ``npu`` command where its script is not on the path."""

import sys

from npu_ir.cli import main

sys.exit(main())
