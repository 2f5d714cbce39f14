#include "ops/rows/nll.h"

#include <algorithm>

#include "ops/pointwise/host_rows.h"
#include "ops/rows/row_call.h"

namespace npu::rows {
namespace {

using pointwise::NumberOf;

constexpr DType kTargets{0, 64, 1};

const TensorDesc& matrix_of(const OpCall& call, bool is_gradient) {
  return is_gradient ? call.outputs[0] : call.inputs[0];
}

Status expect_numel(const TensorDesc& tensor, int64_t numel, const char* which) {
  if (tensor.numel == numel) return expect_contiguous(tensor, which);
  return Status::not_implemented(std::string(which) + " is " + text_of(tensor) + ", not of " +
                                 std::to_string(numel) + " elements");
}

Status check_attrs(const OpCall& call) {
  const auto attrs = attrs_of<NllAttrs>(call);
  if (attrs.reduction >= 0 && attrs.reduction <= 2) return {};
  return Status::not_implemented("reduction is " + std::to_string(attrs.reduction) + ", not 0, 1 or 2");
}

// A number of a tensor of any float dtype.
template <class Number>
class Reader {
 public:
  Reader(const TensorDesc& tensor, Class type)
      : data_(static_cast<const char*>(tensor.data)),
        bytes_(item_bytes(tensor.dtype)),
        read_(pointwise::reader(pointwise::element_of(tensor.dtype), type)) {}
  Number at(int64_t i) const {
    Number number;
    read_(data_ + i * bytes_, 1, &number, 1);
    return number;
  }

 private:
  const char* data_;
  int64_t bytes_;
  pointwise::ReadRow read_;
};

template <class Number>
void put(const TensorDesc& tensor, Class type, int64_t i, Number number) {
  const auto write = pointwise::writer(pointwise::element_of(tensor.dtype), type);
  write(&number, static_cast<char*>(tensor.data) + i * item_bytes(tensor.dtype), 1, 1);
}

// Calls f(row, class, weight) for each row that is not ignored.
template <class Number, class F>
Status each_class(const OpCall& call, const NllSizes& sizes, Class type, F f) {
  const auto* targets = static_cast<const int64_t*>(call.inputs[1].data);
  const Reader<Number> weight(call.inputs[sizes.has_weight ? 2 : 0], type);
  const int64_t ignored = attrs_of<NllAttrs>(call).ignore_index;
  for (int64_t row = 0; row < sizes.rows; ++row) {
    const int64_t target = targets[row];
    if (target == ignored) continue;
    if (target < 0 || target >= sizes.classes) {
      return Status::invalid("target " + std::to_string(target) + " of row " + std::to_string(row) +
                             " is not one of " + std::to_string(sizes.classes) + " classes");
    }
    f(row, target, sizes.has_weight ? weight.at(target) : Number(1));
  }
  return {};
}

template <Class type>
Status launch_forward(const OpCall& call) {
  using Number = NumberOf<type>;
  const NllSizes sizes = nll_sizes(call, false);
  const Reader<Number> x(call.inputs[0], type);
  const TensorDesc &y = call.outputs[0], &total = call.outputs[1];
  double loss = 0, weights = 0;
  for (int64_t row = 0; !sizes.is_reduced && row < sizes.rows; ++row) put(y, type, row, Number(0));
  NPU_TRY(each_class<Number>(call, sizes, type, [&](int64_t row, int64_t target, Number weight) {
    const Number of_row = -x.at(row * sizes.row_stride + target * sizes.class_stride) * weight;
    if (!sizes.is_reduced) return put(y, type, row, of_row);
    loss += double(of_row);
    weights += double(weight);
  }));
  put(total, type, 0, Number(weights));
  const bool is_mean = attrs_of<NllAttrs>(call).reduction == 1;
  if (sizes.is_reduced) put(y, type, 0, Number(is_mean ? loss / weights : loss));
  return {};
}

template <Class type>
Status launch_backward(const OpCall& call) {
  using Number = NumberOf<type>;
  const NllSizes sizes = nll_sizes(call, true);
  const TensorDesc& dx = call.outputs[0];
  const auto write = pointwise::writer(pointwise::element_of(dx.dtype), type);
  constexpr Number zeros[256] = {};
  for (int64_t row = 0; row < sizes.rows; ++row) {
    for (int64_t i = 0; i < sizes.classes; i += 256) {
      char* place = static_cast<char*>(dx.data) +
                    (row * sizes.row_stride + i * sizes.class_stride) * item_bytes(dx.dtype);
      write(zeros, place, sizes.class_stride, std::min<int64_t>(256, sizes.classes - i));
    }
  }
  const Reader<Number> dy(call.inputs[0], type), total(call.inputs[call.num_inputs - 1], type);
  const bool is_mean = sizes.is_reduced && attrs_of<NllAttrs>(call).reduction == 1;
  return each_class<Number>(call, sizes, type, [&](int64_t row, int64_t target, Number weight) {
    const Number slope = dy.at(sizes.is_reduced ? 0 : row) * weight;
    put(dx, type, row * sizes.row_stride + target * sizes.class_stride,
        is_mean ? -slope / total.at(0) : -slope);
  });
}

template <bool is_gradient, Class type>
Status supported(const OpCall& call) {
  return check_nll(call, is_gradient, type);
}

Cost cost(const OpCall& call) { return cost_of(call, double(call.inputs[1].numel)); }

template <Class type>
void add_kernels(std::vector<KernelPtr>* kernels) {
  const std::string suffix = std::string(".") + pointwise::class_name(type) + ".host";
  kernels->push_back(make_kernel({OpKind{248}, "nll_loss" + suffix, DeviceType::Host, 5},
                                 {supported<false, type>, launch_forward<type>, cost}));
  kernels->push_back(make_kernel({OpKind{249}, "nll_loss_bwd" + suffix, DeviceType::Host, 5},
                                 {supported<true, type>, launch_backward<type>, cost}));
}

template <class Attrs>
AttrSchema schema(const char (&name)[5]) {
  return make_schema<Attrs>(
      name, {field("reduction", &Attrs::reduction), field("ignore_index", &Attrs::ignore_index)});
}

}  // namespace

std::vector<OpInfo> nll_infos() {
  return {{.kind = OpKind{248},
           .name = "NllLossFwd",
           .min_inputs = 2,
           .max_inputs = 3,
           .num_outputs = 2,
           .schema = schema<NllAttrs>("NLLF")},
          {.kind = OpKind{249},
           .name = "NllLossBwd",
           .min_inputs = 3,
           .max_inputs = 4,
           .num_outputs = 1,
           .schema = schema<NllAttrs>("NLLB")}};
}

NllSizes nll_sizes(const OpCall& call, bool is_gradient) {
  const TensorDesc& x = matrix_of(call, is_gradient);
  const int last = x.rank - 1;
  const bool has_weight = call.num_inputs == (is_gradient ? 4 : 3);
  const bool is_reduced = attrs_of<NllAttrs>(call).reduction != 0 || x.rank == 1;
  return {x.rank == 2 ? x.shape[0] : 1,
          x.shape[last],
          x.rank == 2 ? x.strides[0] : 0,
          x.strides[last],
          has_weight,
          is_reduced};
}

Status check_nll(const OpCall& call, bool is_gradient, Class type) {
  NPU_TRY(check_floats(call, type, 1));
  NPU_TRY(check_attrs(call));
  const TensorDesc& x = matrix_of(call, is_gradient);
  if (x.rank != 1 && x.rank != 2)
    return Status::not_implemented("x has rank " + std::to_string(x.rank) + ", not 1 or 2");
  const NllSizes sizes = nll_sizes(call, is_gradient);
  NPU_TRY(expect_dtype(call.inputs[1], kTargets, "target"));
  NPU_TRY(expect_numel(call.inputs[1], sizes.rows, "target"));
  if (sizes.has_weight) NPU_TRY(expect_numel(call.inputs[2], sizes.classes, "weight"));
  NPU_TRY(expect_numel(is_gradient ? call.inputs[0] : call.outputs[0], sizes.is_reduced ? 1 : sizes.rows,
                       "y or its gradient"));
  return expect_numel(is_gradient ? call.inputs[call.num_inputs - 1] : call.outputs[1], 1, "total");
}

std::vector<KernelPtr> nll_host_kernels() {
  std::vector<KernelPtr> kernels;
  add_kernels<pointwise::kFloat32>(&kernels);
  add_kernels<pointwise::kFloat64>(&kernels);
  return kernels;
}

}  // namespace npu::rows
