"""Interoperation: ``torch.compile(backend="npu")``, and graphs as programs of PyTorch.

In: FX graphs of Dynamo, or a graph. Out: a callable, an `ExportedProgram`, an `nn.Module`. Open `dynamo.py`
first.
"""
