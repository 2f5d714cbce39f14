"""Contract test suite for backends, for the tests of any plugin.

```python
from npu_runtime.testing import BackendContract

class TestMyBackend(BackendContract):
    backend = MyBackend()
```

In: a backend. Out: a test class that pytest collects. Open `contract.py` first.
"""

from npu_runtime.backends.lowering_rules import lowering_problem
from npu_runtime.testing.contract import BackendContract, check_backend
from npu_runtime.testing.zoo import zoo

__all__ = ["BackendContract", "check_backend", "lowering_problem", "zoo"]
