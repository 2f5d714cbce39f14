"""Conformance kit: sample graphs, and the contract test suite of executors, for the tests of any plugin.

```python
from npu_ir.testing import ExecutorContract, ExecutorSample

class TestScale(ExecutorContract):
    op_type = "my_ops.scale"

    def samples(self):
        return [ExecutorSample(["f32[2, 3]"], {"factor": 2.0}, ["f32[2, 3]"])]
```

In: the name of an op. Out: a test class that pytest collects, and graphs with data for contracts of other
plugins (`npu_passes.testing`, `npu_runtime.testing`). Open `samples.py` first, then `executor_contract.py`.
"""

from npu_ir.testing.executor_contract import ExecutorContract, ExecutorSample
from npu_ir.testing.op_calls import OpCall, operators
from npu_ir.testing.random_graphs import random_graph
from npu_ir.testing.samples import COMMON_OPERATORS, Sample, operator_samples, random_samples

__all__ = [
    "COMMON_OPERATORS",
    "ExecutorContract",
    "ExecutorSample",
    "OpCall",
    "Sample",
    "operator_samples",
    "operators",
    "random_graph",
    "random_samples",
]
