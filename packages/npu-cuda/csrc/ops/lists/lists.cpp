#include "ops/lists/lists.h"

#include <algorithm>

#include "ops/pointwise/nest.h"

namespace npu::lists {
namespace {

using pointwise::Class;

struct Form {
  OpKind kind;
  std::string name, schema;
  std::vector<std::string> ops;  // of the table, which differ in their last inputs
};

const std::vector<Form>& list_forms() {
  static const std::vector<Form> forms = {
      {OpKind::MultiSgd, "MultiSgd", "MSGD", {"SgdStep", "SgdStepLr"}},
      {OpKind::MultiAdam, "MultiAdam", "MADM", {"AdamStep", "AdamStepLr"}},
      {OpKind{400}, "MultiSgdMomentum", "MSGM", {"SgdMomentumStep", "SgdMomentumStepLr"}},
      {OpKind{401}, "MultiAmsgrad", "MAMS", {"AmsgradStep", "AmsgradStepLr"}},
      {OpKind{402}, "MultiStepInc", "", {"StepInc"}},
      {OpKind{403}, "MultiBiasCorr", "MBCR", {"BiasCorr"}},
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
  ListKernel(KernelTraits traits, std::vector<ListOp> ops) : Kernel(std::move(traits)), ops_(std::move(ops)) {}

  Status supported(const OpCall& call) const override {
    const Elements elements = elements_of(call);
    const ListOp* op = op_of(elements);
    if (!op) return Status::not_implemented("it takes " + std::to_string(elements.inputs()) + " lists in another class");
    TensorDesc tensors[pointwise::kMaxOperands];
    for (int i = 0; i < elements.length(); ++i) {
      NPU_TRY(op->supported(elements.at(i, tensors)).at([i] { return "place " + std::to_string(i) + " of the lists"; }));
    }
    return {};
  }

  Status launch(const OpCall& call) const override {
    const Elements elements = elements_of(call);
    return op_of(elements)->launch(call, elements);
  }

  Status prepare(const OpCall& call, void** state) const override {
    const ListOp* op = op_of(elements_of(call));
    *state = nullptr;
    return op->prepare ? op->prepare(call, state) : Status();
  }

  Cost cost(const OpCall& call) const override {
    const Elements elements = elements_of(call);
    TensorDesc tensors[pointwise::kMaxOperands];
    Cost sum{};
    for (int i = 0; i < elements.length(); ++i) {
      const Cost one = op_of(elements)->cost(elements.at(i, tensors));
      sum = {sum.bytes + one.bytes, sum.flops + one.flops};
    }
    return sum;
  }

 private:
  Elements elements_of(const OpCall& call) const { return {call, ops_[0].row.num_outputs()}; }
  const ListOp* op_of(const Elements& elements) const {
    for (const ListOp& op : ops_) {
      if (op.row.num_inputs() == elements.inputs()) return &op;
    }
    return nullptr;
  }

  std::vector<ListOp> ops_;
};

}  // namespace

OpCall Elements::at(int i, TensorDesc* tensors) const {
  OpCall one = call_;
  one.inputs = tensors;
  one.num_inputs = inputs();
  for (int k = 0; k < one.num_inputs; ++k) *tensors++ = call_.inputs[k * length_ + i];
  one.outputs = tensors;
  one.num_outputs = call_.num_outputs / length_;
  for (int k = 0; k < one.num_outputs; ++k) *tensors++ = call_.outputs[k * length_ + i];
  return one;
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
  for (const Form& form : list_forms()) {
    for (const Class type : {pointwise::kFloat32, pointwise::kFloat64, pointwise::kInt64}) {
      std::vector<ListOp> own;
      const auto is_own = [&](const ListOp& op) { return op.type == type && is_named(form.ops, op.row.name); };
      std::copy_if(ops.begin(), ops.end(), std::back_inserter(own), is_own);
      if (own.empty()) continue;
      pointwise::Row row = own[0].row;
      row.name = form.name;
      const std::string id = pointwise::kernel_name(row) + "." + pointwise::class_name(type) + ".";
      KernelTraits traits{form.kind, id + (device == DeviceType::Host ? "host" : "cuda"), device, 5};
      kernels.push_back(std::make_shared<ListKernel>(std::move(traits), std::move(own)));
    }
  }
  return kernels;
}

}  // namespace npu::lists
