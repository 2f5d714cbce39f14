"""``python -m npu_ir.cli``: the ``npu`` command if its script is not on the path."""

import sys

from npu_ir.cli import main

sys.exit(main())
