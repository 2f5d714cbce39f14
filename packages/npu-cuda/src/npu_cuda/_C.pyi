"""
The native part of npu_cuda: ops, programs and graphs of the devices of this machine.
"""

import enum
import os


from collections.abc import Callable, Sequence
from typing import Any
Buffer = bytes | bytearray | memoryview
TensorList = list[Any] | tuple[Any, ...]

class Status(enum.IntEnum):
    """How a call ended: the `status` of our errors."""

    Ok = 0
    """All is well."""

    InvalidArgument = 1
    """The caller is wrong."""

    NotImplemented = 2
    """No kernel takes this."""

    Internal = 3
    """We are wrong."""

    DeviceError = 4
    """The device or its driver failed."""

    Unavailable = 5
    """Not in this build, or not on this machine."""

class OpKind(enum.IntEnum):
    """
    The ops that npu-cuda names; kinds() tells which of them this build has. The numbers never change.
    """

    EltwiseAdd = 0

    EltwiseRelu = 1

    Gemm = 2

    BiasAdd = 3

    ReduceSum = 4

    MseGrad = 5

    ReluBwd = 6

    SgdStep = 7

    Copy = 8

    GradZero = 9

    AdamStep = 10

    StepInc = 11

    BiasCorr = 12

    LayerNormFwd = 13

    LayerNormBwd = 14

    BatchNormFwd = 15

    BatchNormBwd = 16

    GemmEpilogue = 17

    MultiSgd = 18

    MultiAdam = 19

    Sub = 20

    AddScalar = 21

    SubScalar = 88

    Rsub = 22

    RsubScalar = 23

    Mul = 24

    MulScalar = 25

    Div = 26

    DivScalar = 27

    Remainder = 28

    RemainderScalar = 29

    Fmod = 30

    FmodScalar = 31

    FloorDivideIntegers = 32

    FloorDivideIntegersScalar = 33

    Pow = 34

    PowScalar = 35

    ScalarPow = 36

    Maximum = 37

    Minimum = 38

    Clamp = 39

    Lerp = 40

    LerpScalar = 41

    Addcmul = 42

    Addcdiv = 43

    Where = 44

    MaskedFill = 45

    Equal = 46

    EqualScalar = 47

    NotEqual = 48

    NotEqualScalar = 49

    Less = 50

    LessScalar = 51

    LessEqual = 52

    LessEqualScalar = 53

    Greater = 54

    GreaterScalar = 55

    GreaterEqual = 56

    GreaterEqualScalar = 57

    LogicalAnd = 58

    LogicalOr = 59

    LogicalXor = 60

    LogicalNot = 61

    BitwiseAnd = 62

    BitwiseAndScalar = 63

    BitwiseOr = 64

    BitwiseOrScalar = 65

    BitwiseXor = 66

    BitwiseXorScalar = 67

    BitwiseNot = 68

    Neg = 69

    Abs = 70

    Sign = 71

    Square = 72

    Reciprocal = 73

    Floor = 74

    Ceil = 75

    Round = 76

    Trunc = 77

    Exp = 78

    Expm1 = 79

    Log = 80

    Log1p = 81

    Sqrt = 82

    Rsqrt = 83

    Sin = 84

    Cos = 85

    Tanh = 86

    Erf = 87

    Sigmoid = 100

    SigmoidBwd = 101

    TanhBwd = 102

    Gelu = 103

    GeluBwd = 104

    GeluTanh = 105

    GeluTanhBwd = 106

    Silu = 107

    SiluBwd = 108

    Softplus = 109

    SoftplusBwd = 110

    Hardswish = 111

    HardswishBwd = 112

    Hardsigmoid = 113

    HardsigmoidBwd = 114

    HardtanhBwd = 115

    LeakyRelu = 116

    LeakyReluBwd = 117

    Elu = 118

    EluBwd = 119

    SquaredError = 120

    MseBwd = 121

    SgdMomentumStep = 122

    AmsgradStep = 124

    ClipByNorm = 125

    Unscale = 126

    LossScaleUpdate = 127

    DropoutBwd = 128

    Fill = 123

class TensorSpec:
    """
    What a tensor will look like: dtype, shape, strides and alignment, without memory.
    """

    def __init__(self, dtype: str, shape: Sequence[int], strides: Sequence[int] | None = None, alignment: int = 0) -> None:
        """
        Describe a tensor.

        Args:
            dtype: A name as PyTorch has it: "float32", "bfloat16", "int64", "bool".
            shape: At most 8 sizes.
            strides: In elements, not negative; None stands for contiguous.
            alignment: What is promised of the address, in bytes, a power of two up to 256; 0 stands for the
                size of an element.

        Raises:
            InvalidArgumentError: There is no such dtype, rank, size, stride or alignment.
        """

    @property
    def dtype(self) -> str: ...

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def strides(self) -> tuple[int, ...]: ...

    @property
    def alignment(self) -> int: ...

    def __repr__(self) -> str: ...

class Selection:
    """Which kernel takes a call, and why the ones asked before it do not."""

    @property
    def kernel_id(self) -> str | None:
        """None: no kernel takes the call."""

    @property
    def workspace_bytes(self) -> int:
        """What the kernel needs besides the tensors."""

    @property
    def flops(self) -> float:
        """The floating-point operations of the kernel; 0 without one."""

    @property
    def refusals(self) -> list[tuple[str, str]]:
        """Kernel ids and reasons, in the order in which the kernels were asked."""

    def __repr__(self) -> str: ...

def select(kind: OpKind | int, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], schema_id: int = 0, attrs_bytes: Buffer = b'', device: str = 'host', deterministic: bool = False) -> Selection:
    """
    Find the kernel that op_call would run, without memory. For "cuda" no device is needed: without one,
    compute capabilities are not looked at.

    Raises:
        InvalidArgumentError: Counts or attributes are wrong, or there is no such device.
        NotSupportedError: The op is not in this build.
    """

class Tensor:
    """
    Memory of a device as a tensor. Made by empty(); np.from_dlpack and torch.from_dlpack share it.
    """

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def strides(self) -> tuple[int, ...]:
        """In elements."""

    @property
    def dtype(self) -> str: ...

    @property
    def device(self) -> str: ...

    @property
    def data_ptr(self) -> int:
        """The address of the first element; 0 where there is none."""

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""

    def __repr__(self) -> str: ...

    def __dlpack__(self, *, stream: int | None = None, max_version: tuple[int, int] | None = None, dl_device: tuple[int, int] | None = None, copy: bool | None = None) -> object: ...

    def __dlpack_device__(self) -> tuple[int, int]: ...

    def to_bytes(self) -> bytes:
        """A copy of all elements, in row-major order."""

    def copy_from(self, data: Buffer) -> None:
        """
        Set all elements, given in row-major order.

        Raises:
            InvalidArgumentError: The data has another size than `nbytes`.
        """

    def view(self, shape: Sequence[int], strides: Sequence[int] | None = None, offset: int = 0, dtype: str | None = None) -> Tensor:
        """
        Another tensor in the same memory, from `offset` elements (of the new dtype) after the first one.

        Raises:
            InvalidArgumentError: It would end after the memory.
        """

def empty(shape: Sequence[int], dtype: str = 'float32', device: str = 'host', strides: Sequence[int] | None = None) -> Tensor:
    """
    Make a tensor whose elements are not set.

    Args:
        shape: At most 8 sizes.
        dtype: A name as PyTorch has it: "float32", "bfloat16", "int64", "bool".
        device: One that devices() names: "host", "cuda:0".
        strides: In elements, not negative; None stands for contiguous.

    Raises:
        InvalidArgumentError: There is no such dtype, shape or device.
        UnavailableError: The device is not here; the text says why.
        DeviceError: Its memory is used up.
    """

def op_call(kind: OpKind | int, inputs: TensorList, outputs: TensorList, schema_id: int = 0, attrs_bytes: Buffer = b'', stream_handle: int = 0) -> None:
    """
    Run one op: the first kernel that takes these tensors writes the outputs.

    Nothing is copied and nothing waits. Autograd does not see the call.

    Args:
        kind: The op: an OpKind, or the number that kinds() has for its name.
        inputs: A list or tuple of tensors: PyTorch's, NumPy's, Tensor, or what else has __dlpack__. All
            tensors of a call are on one device; shapes and dtypes are up to the op.
        outputs: The same. They may lie in the memory of an input only where the op says so.
        schema_id: Of the attributes; 0, without bytes, stands for the defaults.
        attrs_bytes: The attributes, as npu_cuda.attrs() packs them.
        stream_handle: A cudaStream_t, or what graph_begin() returned. 0 is the stream that is current in
            PyTorch for its tensors, and the default stream of the device for others.

    Raises:
        InvalidArgumentError: Counts, devices, pointers, attributes, or outputs that overlap.
        NotSupportedError: No kernel takes this; the text says for each why not.
        DeviceError: The launch failed.
        TypeError: An argument is of another type than stated here.
    """

def launch_by_id(kernel_id: str, inputs: TensorList, outputs: TensorList, schema_id: int = 0, attrs_bytes: Buffer = b'', stream_handle: int = 0) -> None:
    """
    Run one kernel. As op_call, but tensors that the kernel does not take are an InvalidArgumentError:
    who names a kernel says that it fits.
    """

class PreparedCall:
    """
    A call of prepare_call(): launches its op again and again on the same tensors.
    """

    def __call__(self, stream_handle: int = 0) -> None:
        """Launch it. One thread at a time; the stream is chosen as by op_call."""

    @property
    def kernel_id(self) -> str:
        """The kernel that was chosen."""

def prepare_call(kind: OpKind | int, inputs: TensorList, outputs: TensorList, schema_id: int = 0, attrs_bytes: Buffer = b'') -> PreparedCall:
    """
    Choose and prepare the kernel for a call that will be made many times. It keeps the tensors.

    Arguments and errors are those of op_call; the stream is given to each launch.
    """

def kinds() -> dict[str, int]:
    """The ops of this build, by name."""

def ops() -> list[dict[str, Any]]:
    """
    What is known of each op: name, kind, inputs (the least and the most), outputs, lists (how many inputs
    and outputs, from the last one back, are lists), in_place (pairs of an output and the input that it may
    be), schema (of its attributes, or None), attrs_required, origin.
    """

def kernels(kind: OpKind | int | None = None) -> list[dict[str, Any]]:
    """
    The kernels of one op, or of all, in the order in which they are asked: id, op, device, priority,
    flags, origin.
    """

def attr_schemas() -> dict[str, dict[str, Any]]:
    """
    How attributes are packed, by the name of their schema: id, format (of struct), bytes, and fields as
    tuples of name, code (of struct) and default.
    """

def load_library(path: str | os.PathLike[str]) -> dict[str, Any]:
    """
    Load a shared library of kernels: all it offers, or nothing. It stays loaded.

    Returns:
        Its name, path, ops (their names) and kernels (their ids).

    Raises:
        InvalidArgumentError: There is no such library, it is loaded already, or what it offers is wrong.
        UnavailableError: It says that it cannot be used on this machine.
    """

def libraries() -> list[dict[str, Any]]:
    """
    The libraries of kernels that are loaded, as load_library returned them.
    """

def register_op(name: str, min_inputs: int, max_inputs: int, in_place: Sequence[int], schema: str = '', fields: Sequence[tuple[str, str, float]] = (), attrs_required: bool = False, origin: str = 'Python') -> int:
    """
    Add an op and return its kind. `in_place` has for each output the inputs that it may be, as bits.
    """

def pointwise_ops() -> list[dict[str, Any]]:
    """
    The rows of the table of pointwise ops: name, kind, inputs and outputs (their names), computed_in (the
    number types), schema (of the attributes, or None), expression (its text), flops of an element,
    by_bytes (whether the host computes bools, int8 and uint8 as bytes), and instructions (tuples of name, operands
    and constant) with the default attributes.
    """

def thread_count() -> int:
    """Return the most threads that one call of a host kernel uses."""

def set_thread_count(count: int) -> None:
    """
    Set the most threads that one call of a host kernel uses; results do not depend on it. At first it is
    OMP_NUM_THREADS, or the number of processors.
    """

def vector_bytes() -> int:
    """
    Return the bytes of the vectors that host kernels compute with: 64, 32 or 16.
    NPU_CUDA_VECTOR_BYTES limits them.
    """

def chain_compiler() -> dict[str, str]:
    """
    Return what compiles chains of pointwise ops for the GPU: description (of NVRTC) or absence (why there is
    none), and cache, the folder of what it has compiled, which may be empty.
    """

def chain_text(inputs: list[TensorSpec], outputs: list[TensorSpec], schema_id: int, attrs_bytes: Buffer) -> str:
    """Return the CUDA C++ of a call of Fused that has elements."""

def compile_text(text: str, capability: int) -> bytes:
    """
    Compile CUDA C++ by NVRTC for a compute capability, such as 90, and return the cubin.
    """

def register_kernel(kernel_id: str, kind: OpKind | int, device: str, priority: int, flags: int, launch: Callable[..., None], supported: Callable[..., str | None] | None = None, workspace_bytes: Callable[..., int] | None = None, origin: str = 'Python') -> None:
    """Add a kernel in Python. npu_cuda.kernel does that with more comfort."""

def remove_kernel(kernel_id: str) -> None:
    """
    Take a kernel out of the registry. Programs and graphs that chose it keep it.
    """

def trace_start(capacity: int = 4096, nvtx: bool = False) -> None:
    """
    Write down launches from here on, the last `capacity` of them; with `nvtx` also as ranges for profilers.
    """

def trace_stop() -> None:
    """Write down no further launches. Those that are there stay."""

def trace_events() -> list[dict[str, Any]]:
    """
    The launches since trace_start that the ring buffer still holds, oldest first. Each is a dict: number
    (counts dropped launches, too), start_ns, duration_ns (on the host: of the launch, not of the device's
    work), kind, op, kernel_id, tensors, stream and status.
    """

class Graph:
    """
    Launches that were recorded, to be run again with one call. It works on the memory that was
    bound at the capture, and keeps it. Made by Program.capture() and graph_end().
    """

    def launch(self, n: int = 1, stream_handle: int = 0) -> None:
        """
        Run it n times in a row. 0 is the stream that is current in PyTorch where its tensors were bound, and
        the default stream of the device otherwise.

        Raises:
            InvalidArgumentError: The stream is being captured, or another thread uses the graph.
            DeviceError: The launch failed.
        """

    def update(self, program: Program) -> None:
        """
        Take the tensors that are bound to a program of the same ops and kernels. A failure changes nothing.
        """

    @property
    def nodes(self) -> list[dict[str, Any]]:
        """
        One dict per op: op, kernel_id, and after, the positions of those that it waits for.
        """

    @property
    def topology(self) -> str:
        """"dag" or "chain"."""

    def dot(self) -> str:
        """The nodes in the language of Graphviz."""

def graph_begin(device: str = 'cuda', mode: str = 'thread_local') -> int:
    """
    Begin to record single calls and return the stream to give to them, as stream_handle. Calls on it are
    recorded and not run. One capture at a time per device.
    """

def graph_end(device: str | None = None) -> Graph:
    """
    End the capture and return its graph, which keeps the tensors of all calls.

    Raises:
        InvalidArgumentError: Nothing is being captured; or a call broke the capture, and the text says
            which and how. Then the next capture can begin.
    """

def graph_abort(device: str | None = None) -> None:
    """
    Throw away what is being captured. Without a capture it does nothing, so that it fits a finally.
    """

def graph_launch(graph: Graph | None = None, stream_handle: int = 0) -> None:
    """
    Run a graph once; without one, the last that graph_end() made, which the caller keeps.

    Raises:
        InvalidArgumentError: There is no such graph, or nobody has kept it.
    """

class Program:
    """
    A row of ops over slots, prepared once and run many times with nothing but launches.

    Slots are places for tensors of a fixed description: external ones are bound to tensors
    of the caller, the others lie in one arena. First slot() and add(), then finalize(),
    then bind() and run(). One thread at a time; others are refused.
    """

    def __init__(self, device: str = 'host', deterministic: bool = False) -> None:
        """
        Make an empty program.

        Args:
            device: One that devices() names; "cuda" is the first one.
            deterministic: Take only kernels that give the same bits each time.

        Raises:
            UnavailableError: The device is not here; the text says why.
        """

    def slot(self, spec: TensorSpec, name: str = '', external: bool = True) -> int:
        """
        Add a slot and return its number. One that is not external is a temporary in the arena.
        """

    def view(self, base: int, spec: TensorSpec, offset: int = 0, name: str = '') -> int:
        """
        Add a slot over the memory of another one and return its number.

        Args:
            base: The other slot: external, a temporary, or a view itself.
            spec: Shape and strides of the view; its alignment follows from base and offset.
            offset: In bytes, from the first element of the base.

        Raises:
            InvalidArgumentError: It leaves the memory of its base.
        """

    def add(self, op: OpKind | int | str, inputs: Sequence[int], outputs: Sequence[int], schema_id: int = 0, attrs_bytes: Buffer = b'') -> int:
        """
        Add an op and return its position.

        Args:
            op: Its kind; or the id of the one kernel that is to run it.
            inputs: Numbers of slots.
            outputs: Numbers of slots.
            schema_id: Of the attributes; 0, without bytes, stands for the defaults.
            attrs_bytes: The attributes, as npu_cuda.attrs() packs them.

        Raises:
            InvalidArgumentError: Counts, slots, attributes, or a temporary that nobody has written.
            NotSupportedError: The op is not in this build.
        """

    def finalize(self, alloc: Callable[[int], Any] | None = None) -> None:
        """
        Choose kernels, plan and allocate the arena, prepare kernels. Nothing can be added after it.

        Args:
            alloc: Makes the arena: alloc(nbytes) returns a contiguous tensor of at least so many bytes on the
                device, which the program keeps. What it raises goes through. None: the device makes it.

        Raises:
            NotSupportedError: An op has no kernel for its slots; the text says why.
        """

    def bind(self, slot: int, tensor: Any) -> None:
        """
        Tie an external slot to a tensor, which the program keeps until another one is bound.

        Raises:
            InvalidArgumentError: Dtype, shape, strides, alignment or device are not those of the slot.
        """

    def fix(self, slot: int, tensor: Any) -> None:
        """
        bind() a tensor that stays: call() does not take one for this slot any more.
        """

    def run(self, stream_handle: int = 0) -> None:
        """
        Launch all ops. 0 is the stream that is current in PyTorch where its tensors are bound, and the default
        stream of the device otherwise. On the stream of graph_begin() the ops are recorded.

        Raises:
            InvalidArgumentError: A slot is not bound, or another thread uses the program.
        """

    def take_launched(self) -> int:
        """
        Return how many ops have been launched by the last run(), which may have failed; 0 without a run since the
        last time.
        """

    def call(self, tensors: TensorList, stream_handle: int = 0, keep: bool = True) -> None:
        """
        Bind all external slots but those of fix(), in the order in which they were added, and run.

        Args:
            tensors: One for each of them.
            stream_handle: As for run().
            keep: Whether they stay bound. If not, the program lets them go, as op_call does, and run() and
                capture() want them bound again.
        """

    def compute(self, inputs: TensorList, makers: Sequence[Callable[[], Any]], places: Sequence[int] | None = None) -> list[Any] | None:
        """
        call() on the CPU, without `keep`, into tensors that it makes and returns.

        Returns None, and computes nothing, where a tensor is not one of PyTorch with exactly the dtype, shape,
        strides and alignment of its slot: call() says more. Lazy changes are not asked for.

        Args:
            inputs: Tensors that the caller has.
            makers: Functions that make the other tensors.
            places: Of each external slot, but those of fix(): its tensor, among the inputs, then the others. None:
                in order.
        """

    def describe(self, format: str = 'text') -> str:
        """Slots, ops, kernels, memory and cost, as "text", "json" or "dot"."""

    def capture(self, mode: str = 'thread_local', topology: str = 'auto') -> Graph:
        """
        Record what run() would do, without running it.

        Args:
            mode: Who may disturb it: "thread_local", "global" or "relaxed", as in CUDA.
            topology: "dag": ops that need nothing of each other may run at the same time; "chain": each op
                waits for the one before; "auto": a chain, unless long ops could share the GPU.

        Raises:
            InvalidArgumentError: A slot is not bound, or a kernel broke the capture; the text says which.
        """

    @property
    def arena_bytes(self) -> int:
        """Of all temporaries and workspaces; 0 before finalize()."""

    @property
    def kernels(self) -> list[str | None]:
        """
        The ids of the kernels, one for each op; None before finalize() has chosen.
        """

    def cost(self) -> tuple[float, float]:
        """Bytes that a run reads and writes, and its floating-point operations."""

class StepLoop:
    """
    Runs programs of host in order, again and again, each time on the next of a few slots.

    One thread fills slots: reserve(), write, push(), and end() after the last. Another one
    takes steps: run(), until it returns True. They wait for each other without the GIL.
    """

    def __init__(self, programs: Sequence[Program], inputs: TensorList, slots: Sequence[TensorList], results: TensorList) -> None:
        """
        Make a loop.

        Args:
            programs: Programs whose slots are bound, which nobody else uses meanwhile.
            inputs: Tensors that they read; a step begins by copying a slot into them.
            slots: The same number of tensors each, of the same types.
            results: Contiguous tensors, whose contents are kept after each step.

        Raises:
            InvalidArgumentError: They do not fit, or a program is not of host or not bound.
        """

    def reserve(self) -> int:
        """
        Wait until a slot is free and return its number: the next one in turn. -1 after close().
        """

    def push(self) -> None:
        """Say that the slot of reserve() is full."""

    def end(self) -> None:
        """Say that no more slots will be filled."""

    def close(self) -> None:
        """Say that no more steps will be taken."""

    def run(self, rows: TensorList, limit: int, seconds: float) -> bool:
        """
        Take steps, and return whether there will be no more: end() was called and no slot is full.

        A step that fails raises what Program.run() does. It is not counted, and its slot stays full.

        Args:
            rows: For each result a contiguous tensor of `limit` times its size; the first step fills the first row.
            limit: Of the number of steps.
            seconds: It returns after the step at which they are over, waiting included.
        """

    @property
    def steps_taken(self) -> int:
        """By all calls of run()."""

class RowLoop:
    """
    Runs programs of host in order, again and again, over memory that they share.

    What one step leaves there, the next one reads. One thread at a time.
    """

    def __init__(self, programs: Sequence[Program], inputs: TensorList, given: TensorList, results: TensorList, kept: TensorList, count: int, stop: Sequence[int] | None = None, ended: Any = None) -> None:
        """
        Make a loop.

        Args:
            programs: Programs whose slots are bound, which nobody else uses meanwhile.
            inputs: Contiguous tensors that they read; a step begins by copying a row into each.
            given: For each of them, contiguous, `count` times its size: a row for each step.
            results: Contiguous tensors; a step ends by copying each to its row.
            kept: For each of them, contiguous, `count` times its size.
            count: The number of rows, and the most steps.
            stop: Numbers. There are no more steps once each element of the first result, int64, has been one of
                them after some step.
            ended: Bool, an element for each of these: whether it has been, which steps write down.

        Raises:
            InvalidArgumentError: They do not fit, or a program is not of host or not bound.
        """

    def run(self, limit: int, seconds: float) -> bool:
        """
        Take steps after those that are taken, and return whether there will be no more.

        A step that fails raises what Program.run() does, and is not counted.

        Args:
            limit: Of the number of steps of this call.
            seconds: It returns after the step at which they are over.
        """

    @property
    def steps_taken(self) -> int:
        """By all calls of run()."""

    @property
    def failed_program(self) -> int | None:
        """The number of the program that failed, if the last run() did."""

def synchronize(device: str = 'cuda', stream_handle: int = 0) -> None:
    """
    Wait until a stream has done all its work. 0 is the default stream of the device.

    Raises:
        InvalidArgumentError: The stream is being captured.
        DeviceError: Something that was launched before has failed.
    """

def find_capture(device: str, stream_handle: int) -> int:
    """
    A number for the capture in which a stream is, of whoever, that no other capture has; 0 where it
    captures nothing.
    """

def create_stream(device: str = 'cuda') -> int:
    """
    Make a stream that does not wait for the default one, and return its handle.
    """

def destroy_stream(device: str, stream_handle: int) -> None:
    """Wait for a stream of create_stream(), and destroy it."""

def build_info() -> dict[str, str]:
    """How this library was built; what does not apply is empty."""

def devices() -> list[dict[str, Any]]:
    """The devices that work here, the host first."""

def cuda_absence() -> str:
    """Why there is no CUDA device; empty if there is one."""
