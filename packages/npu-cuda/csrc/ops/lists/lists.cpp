#include "ops/lists/lists.h"

#include <algorithm>
#include <cstring>

#include "ops/pointwise/nest.h"

namespace npu::lists {
namespace {

using pointwise::Class;

struct Form {
  OpKind kind;
  std::string name, schema;
  std::vector<std::string> ops;  // of the table, which differ in their last inputs
  std::vector<std::string> numbers = {};  // attributes for which, on the host, the first op takes lists of tensors
};

const std::vector<Form>& list_forms() {
  static const std::vector<std::string> of_adam = {"lr", "beta1", "beta2", "eps", "weight_decay"};
  static const std::vector<Form> forms = {
      {OpKind::MultiSgd, "MultiSgd", "MSGD", {"SgdStep", "SgdStepLr"}, {"lr", "weight_decay"}},
      {OpKind::MultiAdam, "MultiAdam", "MADM", {"AdamStep", "AdamStepLr"}, of_adam},
      {OpKind{400}, "MultiSgdMomentum", "MSGM", {"SgdMomentumStep", "SgdMomentumStepLr"},
       {"lr", "momentum", "weight_decay", "dampening"}},
      {OpKind{401}, "MultiAmsgrad", "MAMS", {"AmsgradStep", "AmsgradStepLr"}, of_adam},
      {OpKind{402}, "MultiStepInc", "", {"StepInc"}},
      {OpKind{403}, "MultiBiasCorr", "MBCR", {"BiasCorr"}, {"beta1", "beta2"}},
      {OpKind{404}, "MultiClipByNorm", "MCLP", {"ClipByNorm"}},
      {OpKind{405}, "MultiUnscale", "", {"Unscale"}},
  };
  return forms;
}

bool is_named(const std::vector<std::string>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

class ListKernel final : public Kernel {
 public:
  // `numbers`: attributes that may be in memory. The ops are in the order of their inputs.
  ListKernel(KernelTraits traits, std::vector<ListOp> ops, std::vector<AttrField> numbers)
      : Kernel(std::move(traits)), ops_(std::move(ops)), numbers_(std::move(numbers)) {}

  Status supported(const OpCall& call) const override {
    const ListOp* op = op_of(call);
    if (!op) return Status::not_implemented("it takes " + std::to_string(lists_of(call)) + " lists in another class");
    const Elements elements = elements_of(call, *op);
    if (elements.has_numbers()) {
      if (traits().device != DeviceType::Host) return Status::not_implemented("its numbers in memory are read on the host alone");
      NPU_TRY(elements.check_numbers());
    }
    TensorDesc tensors[pointwise::kMaxOperands];
    for (int i = 0; i < elements.length(); ++i) {
      NPU_TRY(op->supported(elements.at(i, tensors)).at([i] { return "place " + std::to_string(i) + " of the lists"; }));
    }
    return {};
  }

  Status launch(const OpCall& call) const override {
    const ListOp& op = *op_of(call);
    return op.launch(call, elements_of(call, op));
  }

  Status prepare(const OpCall& call, void** state) const override {
    const ListOp* op = op_of(call);
    *state = nullptr;
    return op->prepare ? op->prepare(call, state) : Status();
  }

  Cost cost(const OpCall& call) const override {
    const ListOp& op = *op_of(call);
    const Elements elements = elements_of(call, op);
    TensorDesc tensors[pointwise::kMaxOperands];
    Cost sum{};
    for (int i = 0; i < elements.length(); ++i) {
      const Cost one = op.cost(elements.at(i, tensors));
      sum = {sum.bytes + one.bytes, sum.flops + one.flops};
    }
    return sum;
  }

 private:
  int lists_of(const OpCall& call) const { return call.num_inputs / (call.num_outputs / ops_[0].row.num_outputs()); }
  Elements elements_of(const OpCall& call, const ListOp& op) const {
    return {call, op.row.num_inputs(), op.row.num_outputs(), numbers_};
  }
  const ListOp* op_of(const OpCall& call) const {
    const int lists = lists_of(call);
    for (const ListOp& op : ops_) {
      if (op.row.num_inputs() == lists) return &op;
    }
    const bool has_numbers = !numbers_.empty() && lists == ops_[0].row.num_inputs() + int(numbers_.size());
    return has_numbers ? &ops_[0] : nullptr;
  }

  std::vector<ListOp> ops_;
  std::vector<AttrField> numbers_;
};

std::vector<AttrField> fields_of(const OpInfo& info, const std::vector<std::string>& names) {
  std::vector<AttrField> fields;
  for (const AttrField& field : info.schema ? info.schema->fields : std::vector<AttrField>{}) {
    if (is_named(names, field.name)) fields.push_back(field);
  }
  return fields;
}

}  // namespace

OpCall Elements::at(int i, TensorDesc* tensors) const {
  OpCall one = call_;
  one.inputs = tensors;
  one.num_inputs = inputs_;
  for (int k = 0; k < one.num_inputs; ++k) *tensors++ = call_.inputs[k * length_ + i];
  one.outputs = tensors;
  one.num_outputs = call_.num_outputs / length_;
  for (int k = 0; k < one.num_outputs; ++k) *tensors++ = call_.outputs[k * length_ + i];
  return one;
}

void Elements::read_numbers(int i, char* attrs) const {
  for (size_t k = 0; has_numbers() && k < numbers_.size(); ++k) {
    const TensorDesc& tensor = number(int(k), i);
    const double value = tensor.dtype == npu::kFloat32 ? double(*static_cast<const float*>(tensor.data))
                                                       : *static_cast<const double*>(tensor.data);
    const auto narrow = static_cast<float>(value);
    if (numbers_[k].code == 'd') std::memcpy(attrs + numbers_[k].offset, &value, sizeof(value));
    else std::memcpy(attrs + numbers_[k].offset, &narrow, sizeof(narrow));
  }
}

Status Elements::check_numbers() const {
  for (size_t k = 0; k < numbers_.size(); ++k) {
    for (int i = 0; i < length_; ++i) {
      const TensorDesc& tensor = number(int(k), i);
      const pointwise::Element element = pointwise::element_of(tensor.dtype);
      if (tensor.rank == 0 && (element == pointwise::Element::Float64 || element == pointwise::Element::Float32)) continue;
      return Status::not_implemented(numbers_[k].name + " is " + text_of(tensor) + ", not one number of 32 or 64 bits");
    }
  }
  return {};
}

std::vector<OpInfo> infos() {
  std::vector<OpInfo> all;
  const std::vector<OpInfo> singles = pointwise::infos();
  for (const Form& form : list_forms()) {
    const auto is_its_op = [&](const OpInfo& info) { return is_named(form.ops, info.name); };
    OpInfo info = *std::find_if(singles.begin(), singles.end(), is_its_op);
    info.kind = form.kind;
    info.name = form.name;
    info.input_lists = info.min_inputs;
    info.output_lists = info.num_outputs;
    info.max_inputs = std::max(info.max_inputs, info.min_inputs + int(form.numbers.size()));
    if (info.schema) {
      const std::string& letters = form.schema;
      info.schema->name = letters;
      info.schema->id = fourcc({letters[0], letters[1], letters[2], letters[3], 0});
    }
    all.push_back(std::move(info));
  }
  return all;
}

std::vector<KernelPtr> kernels_of(const std::vector<ListOp>& ops, DeviceType device) {
  std::vector<KernelPtr> kernels;
  const std::vector<OpInfo> all = infos();
  for (const Form& form : list_forms()) {
    const OpInfo& info = all[size_t(&form - list_forms().data())];
    for (const Class type : {pointwise::kFloat32, pointwise::kFloat64, pointwise::kInt64}) {
      std::vector<ListOp> own;
      const auto is_own = [&](const ListOp& op) { return op.type == type && is_named(form.ops, op.row.name); };
      std::copy_if(ops.begin(), ops.end(), std::back_inserter(own), is_own);
      if (own.empty()) continue;
      pointwise::Row row = own[0].row;
      row.name = form.name;
      const std::string id = pointwise::kernel_name(row) + "." + pointwise::class_name(type) + ".";
      KernelTraits traits{form.kind, id + (device == DeviceType::Host ? "host" : "cuda"), device, 5};
      kernels.push_back(std::make_shared<ListKernel>(std::move(traits), std::move(own), fields_of(info, form.numbers)));
    }
  }
  return kernels;
}

}  // namespace npu::lists
