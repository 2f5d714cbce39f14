// Fused on the GPU: one kernel, which NVRTC compiles from the text of the chain when the call is prepared.
#include "cuda/compiled_kernels.h"
#include "ops/elementwise_grid.h"
#include "ops/fast_division.h"
#include "ops/fused/cuda_text.h"
#include "ops/fused/fused.h"
#include "ops/pointwise/nest.h"
#include "ops/pointwise/pointwise.h"

namespace npu {
namespace {

using fusion::Chain;
using fusion::CudaLayout;
using fusion::Rows;
using pointwise::Nest;

static_assert(kThreads == fusion::kChainThreads);

// A call but for the addresses of its tensors.
struct Prepared {
  void (*kernel)(Rows);
  LaunchShape shape;
  Rows rows;
};

Rows rows_of(const Nest& nest) {
  Rows rows{};
  rows.numel = nest.numel;
  for (int axis = 0; axis < nest.rank; ++axis) {
    const FastDivision division(static_cast<uint32_t>(nest.shape[axis]));
    rows.shape[axis] = division.divisor;
    rows.multiplier[axis] = division.multiplier;
    rows.shift[axis] = division.shift;
    for (int i = 0; i < nest.operands; ++i) rows.strides[i][axis] = static_cast<uint32_t>(nest.strides[i][axis]);
  }
  return rows;
}

Status prepare_chain(const OpCall& call, Prepared* prepared) {
  Chain chain;
  NPU_TRY(chain.make(call));
  const Nest nest = pointwise::nest_of(call);
  const CudaLayout layout(nest, call);
  const void* kernel = nullptr;
  NPU_TRY(compiled_kernel(cuda_text(chain, layout), fusion::kChainKernel, call.compute_capability, &kernel));
  const int64_t items = layout.items(chain);
  *prepared = {reinterpret_cast<void (*)(Rows)>(const_cast<void*>(kernel)), item_shape((nest.numel + items - 1) / items),
               rows_of(nest)};
  return {};
}

Status launch_chain(const OpCall& call, const Prepared& prepared) {
  Rows rows = prepared.rows;
  for (int i = 0; i < call.num_inputs + call.num_outputs; ++i) rows.data[i] = pointwise::operand_of(call, i).data;
  return launch(prepared.kernel, prepared.shape, call.stream, rows);
}

class FusedCudaKernel final : public Kernel {
 public:
  FusedCudaKernel() : Kernel({.kind = kFused, .id = "fused.cuda", .device = DeviceType::Cuda}) {}

  Status supported(const OpCall& call) const override {
    Chain chain;
    NPU_TRY(chain.make(call));
    NPU_TRY(expect_near(call));
    return can_compile_kernels();
  }

  Status prepare(const OpCall& call, void** state) const override {
    auto prepared = std::make_unique<Prepared>();
    if (call.outputs[0].numel != 0) NPU_TRY(prepare_chain(call, prepared.get()));
    return *state = prepared.release(), Status();
  }
  void release(void* state) const noexcept override { delete static_cast<Prepared*>(state); }

  Status launch(const OpCall& call) const override {
    if (call.outputs[0].numel == 0) return {};
    if (call.state) return launch_chain(call, *static_cast<const Prepared*>(call.state));
    Prepared prepared;
    NPU_TRY(prepare_chain(call, &prepared));
    return launch_chain(call, prepared);
  }
};

}  // namespace

std::vector<KernelPtr> fused_cuda_kernels() { return {std::make_shared<FusedCudaKernel>()}; }

}  // namespace npu
