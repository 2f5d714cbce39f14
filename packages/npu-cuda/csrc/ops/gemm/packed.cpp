#include "ops/gemm/packed.h"

#include "ops/fused/following_call.h"
#include "ops/gemm/steps.h"
#include "ops/planned_kernel.h"
#include "ops/threads.h"

namespace npu {
namespace {

using namespace gemm;

constexpr OpKind kPackMatrix{360}, kPackedGemm{361};

int64_t from_last(const TensorDesc& tensor, int axis) { return tensor.shape[tensor.rank - axis]; }

// ---- PackMatrix ----

Status pack_supported(const OpCall& call) {
  const TensorDesc &b = call.inputs[0], &p = call.outputs[0];
  NPU_TRY(expect_float(b, "B"));
  NPU_TRY(expect_dtype(p, b.dtype, "P"));
  NPU_TRY(expect_contiguous(p, "P"));
  if (p.rank == b.rank + 1 && same_numbers(p.shape, b.shape, b.rank - 2) && from_last(p, 2) == from_last(b, 2)) {
    const int64_t panels = from_last(p, 3), width = from_last(p, 1), n = from_last(b, 1);
    if (width > 0 && panels == (n + width - 1) / width) return {};
  }
  return Status::not_implemented("P is " + text_of(p) + ", not the panels of " + text_of(b));
}

Status launch_pack(const OpCall& call) {
  const TensorDesc &b = call.inputs[0], &p = call.outputs[0];
  if (p.numel == 0) return {};
  const int64_t k = from_last(b, 2), n = from_last(b, 1), panels = from_last(p, 3), width = from_last(p, 1);
  Problem problem{};
  problem.b = operand_of(b, b);
  problem.batch_rank = b.rank - 2;
  std::copy_n(b.shape, problem.batch_rank, problem.batch_shape);
  const auto pack_one = [&](int64_t task) {
    const int64_t column = task % panels * width;
    const int64_t start = problem.offset(problem.b, task / panels) + column * problem.b.column;
    pack(problem.b, start, k, std::min(width, n - column), width,
         static_cast<char*>(p.data) + task * k * width * bytes_of(problem.b.element));
  };
  const int64_t tasks = p.numel / (k * width);
  if (nbytes(p) > 64 << 10) return parallel_tasks(tasks, pack_one), Status();
  for (int64_t task = 0; task < tasks; ++task) pack_one(task);
  return {};
}

// ---- PackedGemm ----

struct PackedAttrs {
  uint32_t has_bias = 0, temporaries = 0, steps = 0;
};

// The call of the Fused op in it.
struct FusedCall : fusion::FollowingCall {
  explicit FusedCall(const OpCall& whole)
      : FollowingCall(whole, attrs_of<PackedAttrs>(whole).has_bias ? 3 : 2, sizeof(PackedAttrs) - sizeof(fusion::Header),
                      whole.inputs[0].dtype) {}
};

Status expect_panels(const TensorDesc& a, const TensorDesc& p, const TensorDesc& d) {
  NPU_TRY(expect_dtype(p, a.dtype, "P"));
  NPU_TRY(expect_contiguous(p, "P"));
  const BlockLoops& loops = block_loops(pointwise::element_of(a.dtype));
  const int64_t n = from_last(d, 1), width = p.rank > 2 ? from_last(p, 1) : 0;
  if (p.rank < 3 || from_last(p, 2) != from_last(a, 1) || width == 0 || from_last(p, 3) != (n + width - 1) / width) {
    return Status::not_implemented("P is " + text_of(p) + ", not the panels of [" + std::to_string(from_last(a, 1)) +
                                   ", " + std::to_string(n) + "]");
  }
  if (width % loops.vector == 0 && width <= Product::kMostWidth) return {};
  return Status::not_implemented("P has panels of " + std::to_string(width) +
                                 " columns; this processor takes a multiple of " + std::to_string(loops.vector) +
                                 " up to " + std::to_string(Product::kMostWidth));
}

Status gemm_tensors_supported(const OpCall& call) {
  const auto attrs = attrs_of<PackedAttrs>(call);
  const TensorDesc &a = call.inputs[0], &p = call.inputs[1], &d = call.outputs[0];
  NPU_TRY(expect_float(a, "A"));
  if (d.rank < 2) return Status::not_implemented("D has rank " + std::to_string(d.rank) + ", less than 2");
  NPU_TRY(expect_panels(a, p, d));
  NPU_TRY(expect_matrix(d, from_last(a, 2), from_last(d, 1), "D"));
  NPU_TRY(expect_batch(a, d, "A"));
  // Of the panels, as if they were a matrix.
  TensorDesc matrix = p;
  --matrix.rank;
  NPU_TRY(expect_batch(matrix, d, "P"));
  if (!attrs.has_bias) return {};
  if (call.num_inputs < 3) return Status::not_implemented("it has a bias, but only two inputs");
  NPU_TRY(expect_dtype(call.inputs[2], a.dtype, "bias"));
  if (call.inputs[2].rank == 1 && call.inputs[2].shape[0] == from_last(d, 1)) return {};
  return other_shape(call.inputs[2], d, "bias", "a row of D");
}

// Which rows are joined decides the order of sums: steps, where these write D, and their tensors have no say in it.
Problem problem_of_packed(const OpCall& call, bool writes_d) {
  const TensorDesc &a = call.inputs[0], &p = call.inputs[1], &d = call.outputs[0];
  Problem problem{};
  problem.m = from_last(d, 2);
  problem.n = from_last(d, 1);
  problem.k = from_last(a, 1);
  problem.a = operand_of(a, d);
  TensorDesc matrix = p;
  --matrix.rank;
  problem.b = operand_of(matrix, d);  // the axes before the panels are those before a matrix
  problem.d = writes_d ? operand_of(d, d) : problem.a;
  problem.alpha = 1;
  problem.batch_rank = d.rank - 2;
  std::copy_n(d.shape, problem.batch_rank, problem.batch_shape);
  join_rows(&problem);
  return problem;
}

Status check(const OpCall& call) {
  NPU_TRY(gemm_tensors_supported(call));
  const auto attrs = attrs_of<PackedAttrs>(call);
  Steps steps;
  if (attrs.steps > 0) return steps.make(FusedCall(call).call, 1);
  if (call.num_inputs > 2 + (attrs.has_bias ? 1 : 0) || call.num_outputs > 1) {
    return Status::not_implemented("it has more tensors than a product, but no steps");
  }
  return expect_either(call.outputs[0], call.inputs[0].dtype, "D");
}

Cost cost(const OpCall& call) {
  return cost_of(call, 2.0 * double(call.outputs[0].numel) * double(from_last(call.inputs[0], 1)));
}

// All of a call but the addresses of its tensors.
class PackedPlan {
 public:
  explicit PackedPlan(const OpCall& call) : has_steps_(attrs_of<PackedAttrs>(call).steps > 0) {
    if (attrs_of<PackedAttrs>(call).has_bias) bias_ = broadcast_operand(call.inputs[own_inputs_++], call.outputs[0]);
    const int64_t width = from_last(call.inputs[1], 1);
    const Problem problem = problem_of_packed(call, !has_steps_);
    product_.emplace(problem, width);
    if (!has_steps_) return;
    const FusedCall fused(call);
    (void)steps_.make(fused.call, product_->stride());  // the call is supported
    const Problem writing = problem_of_packed(call, true);
    const bool are_rows_equal = writing.m == problem.m && writing.batch_rank == problem.batch_rank;
    are_in_registers_ = are_rows_equal && steps_.in_registers(fused.call) && Product(writing, width).takes_steps();
    if (are_in_registers_) product_.emplace(writing, width);
  }
  PackedPlan(const PackedPlan&) = delete;

  uint64_t workspace_bytes() const { return product_->workspace_bytes(); }

  void run(const OpCall& call) const {
    const Product product = product_->over(call.inputs[0].data, call.inputs[1].data, call.outputs[0].data);
    Operand bias = bias_;
    if (own_inputs_ > 2) bias.data = call.inputs[2].data;
    if (!has_steps_) return product.run(call.workspace, bias, {});
    if (are_in_registers_) {
      const auto steps = steps_.in_registers(FusedCall(call).call);
      return product.run(call.workspace, bias, {.in_registers = &*steps});
    }
    const Steps::Launch launched(steps_, call.inputs + own_inputs_, call.outputs);
    product.run(call.workspace, bias, launched.finish());
  }

 private:
  std::optional<Product> product_;
  int own_inputs_ = 2;  // those that are not of steps
  Operand bias_{};
  bool has_steps_, are_in_registers_ = false;
  Steps steps_;
};

PackedPlan plan_of(const OpCall& call) { return PackedPlan(call); }

}  // namespace

std::vector<OpInfo> packed_gemm_infos() {
  AttrSchema schema = make_schema<PackedAttrs>(
      "PGEM", {field("has_bias", &PackedAttrs::has_bias), field("temporaries", &PackedAttrs::temporaries),
               field("steps", &PackedAttrs::steps)});
  schema.is_open = true;
  return {{.kind = kPackMatrix, .name = "PackMatrix", .min_inputs = 1, .max_inputs = 1, .num_outputs = 1},
          {.kind = kPackedGemm, .name = "PackedGemm", .min_inputs = 2, .max_inputs = pointwise::kMaxOperands,
           .num_outputs = 1, .max_outputs = kMaxOutputs, .schema = std::move(schema)}};
}

std::vector<KernelPtr> packed_gemm_host_kernels() {
  return {make_kernel({kPackMatrix, "pack_matrix.host", DeviceType::Host}, {pack_supported, launch_pack}),
          std::make_shared<PlannedKernel<PackedPlan>>(
              kPackedGemm, "packed_gemm.host", PlannedKernel<PackedPlan>::Functions{check, plan_of, cost})};
}

}  // namespace npu
