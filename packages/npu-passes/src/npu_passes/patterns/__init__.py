"""Declarative rewrites: patterns and their replacements, written in the same terms.

```python
from npu_passes.patterns import PatternPass, Rule, aten, commutative, op, var

x, y = var("x"), var("y")

class FuseAddRelu(PatternPass):
    \"\"\"Fuse ``relu(x + y)``.\"\"\"

    name = "fuse-add-relu"
    rules = (
        Rule(
            "add-relu",
            aten.relu.default(commutative(aten.add.Tensor(x, y))),
            op("mylib.add_relu.default")(x, y),
        ),
    )
```

In: rules of two patterns each. Out: a pass. Open `pattern_pass.py` first.
"""

from npu_passes.patterns.matcher import Match
from npu_passes.patterns.pattern_pass import PatternPass, Rule
from npu_passes.patterns.terms import aten, attr, commutative, maybe, one_of, op, output, shared, var

__all__ = [
    "Match",
    "PatternPass",
    "Rule",
    "aten",
    "attr",
    "commutative",
    "maybe",
    "one_of",
    "op",
    "output",
    "shared",
    "var",
]
