"""Conformance tests of passes, for the test suite of any plugin.

```python
from npu_passes.testing import PassContract, check_pass

class TestMyPass(PassContract):
    passes = MyPass  # or its name, with options: "my-pass{limit=3}"

    def graphs(self):
        return [graph, another]

def test_the_pass_keeps_its_promises():
    assert check_pass(MyPass(), [graph, another]) == 2
```

In: passes, and graphs that they change. Out: a test class that pytest collects. Open `contract.py` first,
then `check.py`.
"""

from npu_passes.testing.check import check_pass
from npu_passes.testing.contract import PassContract

__all__ = ["PassContract", "check_pass"]
