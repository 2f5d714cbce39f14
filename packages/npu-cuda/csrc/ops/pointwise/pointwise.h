// The pointwise ops: their descriptions and kernels, all made from the tables. To add an op, add a line to
// table_arithmetic.h or table_training.h.
#pragma once

#include "core/op_info.h"
#include "ops/pointwise/elements.h"
#include "ops/pointwise/op.h"
#include "ops/pointwise/recorder.h"

namespace npu::pointwise {

// An op without its type.
struct Description {
  Row row;
  std::optional<AttrSchema> schema;
  bool attrs_required;
  Recording recording;  // of its expression with default attributes
};

std::vector<Description> descriptions();
// Returns the infos of all kinds but those, like Copy, that another folder of ops describes.
std::vector<OpInfo> infos();
// Returns the names of parameters: of "(V x, V other)" they are "x" and "other".
std::vector<std::string> names_of(std::string_view parameters);
// "silu_bwd": of SiluBwd, in the ids of its kernels.
std::string kernel_name(const Row& row);
// "f32"
const char* class_name(Class type);

// What a tensor of such elements is computed in, and the elements that are the numbers of a class.
Class class_of(Element element);
Element stored_as(Class type);

// Returns the operations of one element, counted from the expression.
double flops_of(const Row& row);

// Ok where the op is computed in this class for such tensors, and can be; else NotImplemented with the
// reason.
Status check_tensors(const Row& row, Class type, const OpCall& call);
// The part of it that is about dtypes.
Status check_dtypes(const Row& row, Class type, const OpCall& call);

// The instructions of an op that computes in such numbers.
template <class Fn, class Number>
Recording record(const typename Fn::Attrs& attrs) {
  Recording recording;
  const RecorderScope scope(&recording);
  Recorder<Number> inputs[kInputs<Fn> + 1];
  for (int i = 0; i < kInputs<Fn>; ++i) inputs[i] = Recorder<Number>::of(RecorderScope::load(i));
  const auto results = apply<Fn>(attrs, inputs);
  for (const Recorder<Number>& result : results.of) RecorderScope::set_result(result.place);
  return recording;
}

template <class Attrs>
Attrs resolved_attrs(const OpCall& call) {
  auto attrs = attrs_of<Attrs>(call);
  if constexpr (requires { attrs.resolve(call); }) attrs.resolve(call);
  return attrs;
}

template <class Fn>
typename Fn::Attrs attrs_of_call(const OpCall& call) { return resolved_attrs<typename Fn::Attrs>(call); }

template <class Fn, Class type>
Status supported(const OpCall& call) {
  NPU_TRY(check_tensors(Fn::row, type, call));
  if constexpr (requires(const typename Fn::Attrs attrs) { attrs.check(call); }) {
    return attrs_of<typename Fn::Attrs>(call).check(call);
  }
  return {};
}

template <class Fn>
Cost cost(const OpCall& call) {
  static const double flops = flops_of(Fn::row);
  return cost_of(call, flops * double(call.outputs[0].numel));
}

// The number type of a class.
template <Class type>
using NumberOf = std::conditional_t<type == kFloat32, float, std::conditional_t<type == kFloat64, double, int64_t>>;

std::vector<KernelPtr> host_kernels();
std::vector<KernelPtr> cuda_kernels();

// The parts of the latter, which are compiled apart.
std::vector<KernelPtr> arithmetic_cuda_kernels();
std::vector<KernelPtr> training_cuda_kernels();

}  // namespace npu::pointwise
