#include "ops/pointwise/pointwise.h"

#include <algorithm>
#include <cctype>

#include "ops/pointwise/nest.h"

namespace npu::pointwise {
namespace {

template <class Fn>
Description describe() {
  std::optional<AttrSchema> schema;
  if (!Fn::row.schema.empty()) {
    const std::string letters(Fn::row.schema);
    const char name[5] = {letters[0], letters[1], letters[2], letters[3], 0};
    schema = make_schema<typename Fn::Attrs>(name, Fn::Attrs::fields());
  }
  return {Fn::row, std::move(schema), requires { Fn::Attrs::kRequired; }, record<Fn, float>({})};
}

template <class... Fns>
void describe_all(Ops<Fns...>, std::vector<Description>* all) {
  (all->push_back(describe<Fns>()), ...);
}

// The inputs that an output may be: the one of its name, or any.
uint64_t permitted_aliases(const std::vector<std::string>& inputs, const std::string& output) {
  const auto same = std::find(inputs.begin(), inputs.end(), output);
  return same == inputs.end() ? input_bit(static_cast<int>(inputs.size())) - 1
                              : input_bit(static_cast<int>(same - inputs.begin()));
}

OpInfo info_of(const Description& op) {
  OpInfo info{.kind = op.row.kind, .name = std::string(op.row.name), .min_inputs = op.row.num_inputs(),
              .max_inputs = op.row.num_inputs(), .num_outputs = op.row.num_outputs(), .schema = op.schema,
              .attrs_required = op.attrs_required};
  const std::vector<std::string> inputs = names_of(op.row.inputs), outputs = names_of(op.row.outputs);
  for (size_t i = 0; i < outputs.size(); ++i) info.in_place[i] = permitted_aliases(inputs, outputs[i]);
  return info;
}

Status unknown_dtype(const TensorDesc& tensor) {
  return Status::not_implemented("a tensor is " + name_of(tensor.dtype) + ", not a real number of 64 bits or less");
}

Status expect_class(const Row& row, Class type, Class needed, const OpCall& call) {
  unsigned computed = needed;
  while (computed <= kFloat64 && !(row.classes & computed)) computed <<= 1;
  if (computed == type) return {};
  const std::string tensors = name_of(operand_of(call, 0).dtype);
  if (computed > kFloat64) return Status::not_implemented(std::string(row.name) + " is not defined for " + tensors);
  return Status::not_implemented(tensors + " is computed in " + class_name(static_cast<Class>(computed)) +
                                 ", not in " + class_name(type));
}

// An op that computes real numbers does not cut off their fractions.
Status expect_result(const Row& row, Class needed, const OpCall& call) {
  for (int i = 0; i < call.num_outputs; ++i) {
    const Class stored = class_of(element_of(call.outputs[i].dtype));
    if (stored >= needed && (stored & row.classes)) continue;
    return Status::not_implemented(std::string(row.name) + " has no result of " + name_of(call.outputs[i].dtype) +
                                   " for such inputs");
  }
  return {};
}

}  // namespace

Class class_of(Element element) {
  switch (element) {
    case Element::Float64: return kFloat64;
    case Element::Float32:
    case Element::Float16:
    case Element::BFloat16: return kFloat32;
    default: return kInt64;
  }
}

Element stored_as(Class type) {
  return type == kFloat32 ? Element::Float32 : type == kFloat64 ? Element::Float64 : Element::Int64;
}

const char* class_name(Class type) { return type == kFloat32 ? "f32" : type == kFloat64 ? "f64" : "i64"; }

std::vector<std::string> names_of(std::string_view parameters) {
  std::vector<std::string> names(1);
  for (size_t i = 1; i + 1 < parameters.size(); ++i) {
    if (parameters[i] == ',') names.emplace_back();
    else if (parameters[i] == ' ') names.back().clear();  // what came before was the type
    else names.back() += parameters[i];
  }
  if (names.back().empty()) names.pop_back();
  return names;
}

std::vector<Description> descriptions() {
  std::vector<Description> all;
  describe_all(AllArithmetic{}, &all);
  describe_all(AllTraining{}, &all);
  return all;
}

double flops_of(const Row& row) {
  static const std::vector<Description> all = descriptions();
  const auto is_same = [&](const Description& op) { return op.row.name == row.name; };
  const auto found = std::find_if(all.begin(), all.end(), is_same);
  return static_cast<double>(found->recording.flops());
}

std::vector<OpInfo> infos() {
  std::vector<OpInfo> all;
  for (const Description& op : descriptions()) {
    if (op.row.kind == OpKind::Copy) continue;
    const auto is_same = [&](const OpInfo& info) { return info.kind == op.row.kind; };
    const auto found = std::find_if(all.begin(), all.end(), is_same);
    if (found == all.end()) all.push_back(info_of(op));
    else found->max_inputs = std::max(found->max_inputs, op.row.num_inputs());
  }
  return all;
}

std::string kernel_name(const Row& row) {
  std::string_view name = row.name;
  if (name.starts_with("Eltwise")) name.remove_prefix(7);
  std::string snake;
  for (const char letter : name) {
    if (std::isupper(letter) && !snake.empty()) snake += '_';
    snake += static_cast<char>(std::tolower(letter));
  }
  return snake;
}

Status check_tensors(const Row& row, Class type, const OpCall& call) {
  if (call.num_inputs != row.num_inputs()) {
    return Status::not_implemented("it takes " + std::to_string(row.num_inputs()) + " inputs");
  }
  NPU_TRY(check_dtypes(row, type, call));
  return check_shapes(call);
}

Status check_dtypes(const Row& row, Class type, const OpCall& call) {
  Class needed = kInt64;
  for (int i = 0; i < call.num_inputs + call.num_outputs; ++i) {
    const TensorDesc& tensor = operand_of(call, i);
    const Element element = element_of(tensor.dtype);
    if (element == Element::None) return unknown_dtype(tensor);
    needed = std::max(needed, class_of(element));
  }
  NPU_TRY(expect_class(row, type, needed, call));
  return row.classes & kConverts ? Status() : expect_result(row, needed, call);
}

#ifdef NPU_WITH_CUDA
std::vector<KernelPtr> cuda_kernels() {
  std::vector<KernelPtr> kernels = arithmetic_cuda_kernels();
  for (const KernelPtr& kernel : training_cuda_kernels()) kernels.push_back(kernel);
  return kernels;
}
#endif

}  // namespace npu::pointwise
