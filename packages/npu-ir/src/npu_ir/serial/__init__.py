"""Graphs and weights as files and text: reading, writing, parsing.

In: a graph, or a path or text. Out: a JSON document with its tensors in a safetensors file, written
atomically; or an equal graph. Open `save.py` and `load.py` first; `parser.py` for text, `checkpoints.py`
for weights of others.
"""

from npu_ir.serial.load import load_ir
from npu_ir.serial.migrate import check_compatibility, migrate_ir
from npu_ir.serial.save import save_ir

__all__ = ["check_compatibility", "load_ir", "migrate_ir", "save_ir"]
