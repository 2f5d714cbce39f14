#include "ops/pointwise/random.h"

#include <algorithm>

#include "ops/pointwise/nest.h"

namespace npu::pointwise {
namespace {

constexpr int kKeyInputs = 2;  // seed and offset

template <class Fn>
OpInfo info() {
  const int inputs = kInputs<Fn> - 1 + kKeyInputs;
  const std::string letters(Fn::row.schema);
  const char name[5] = {letters[0], letters[1], letters[2], letters[3], 0};
  OpInfo made{.kind = Fn::row.kind, .name = std::string(Fn::row.name), .min_inputs = inputs, .max_inputs = inputs,
              .num_outputs = kOutputs<Fn>, .schema = make_schema<typename Fn::Attrs>(name, Fn::Attrs::fields())};
  if (kInputs<Fn> > 1) made.in_place[0] = input_bit(0);
  return made;
}

}  // namespace

RandomCall::RandomCall(const OpCall& call) : call_(call) {
  TensorDesc& random = inputs_[0] = call.outputs[0];
  random.data = nullptr;
  random.dtype = npu::kFloat32;
  random.flags = NPU_TENSOR_CONTIGUOUS;
  int64_t stride = 1;
  for (int axis = random.rank - 1; axis >= 0; stride *= random.shape[axis--]) random.strides[axis] = stride;
  std::copy_n(call.inputs, call.num_inputs - kKeyInputs, inputs_ + 1);
  call_.inputs = inputs_;
  call_.num_inputs = call.num_inputs - kKeyInputs + 1;
}

std::vector<OpInfo> random_infos() { return {info<op::Dropout>(), info<op::Uniform>()}; }

Status check_random(const Row& row, Class type, const OpCall& call) {
  for (int i = call.num_inputs - kKeyInputs; i < call.num_inputs; ++i) {
    const TensorDesc& key = call.inputs[i];
    if (element_of(key.dtype) == Element::Int64 && key.numel == 1) continue;
    return Status::not_implemented("seed and offset are int64 numbers, not " + text_of(key));
  }
  const DType result = call.outputs[0].dtype;
  if (class_of(element_of(result)) == kInt64) {
    return Status::not_implemented(std::string(row.name) + " has no result of " + name_of(result));
  }
  return check_tensors(row, type, RandomCall(call).call());
}

}  // namespace npu::pointwise
