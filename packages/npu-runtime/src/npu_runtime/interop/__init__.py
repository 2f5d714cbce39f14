"""Interoperation: ``torch.compile(backend="npu")``, graphs as programs of PyTorch, and other runtimes.

In: FX graphs of Dynamo, or a graph. Out: a callable, an `ExportedProgram`, an `nn.Module`. Open `dynamo.py`
first; `peers.py` for ONNX Runtime and OpenVINO.
"""
