#include <algorithm>

#include "ops/host_simd.h"
#include "ops/lists/list_reductions.h"
#include "ops/pointwise/host_rows.h"
#include "ops/pointwise/nest.h"
#include "ops/pointwise/pointwise.h"
#include "ops/threads.h"

namespace npu::lists {
namespace {

using namespace pointwise;
using pointwise::kFloat32;

constexpr int64_t kPart = 4096, kPartsOfAThread = 8;  // elements of a part, parts of a thread
constexpr int kLanes = 8;

template <class Fn, class Number>
struct StepRow {
  static NPU_INLINE void run(const Number* x, int64_t n, double* states) {
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
      for (int lane = 0; lane < kLanes; ++lane) states[lane] = Fn::step(states[lane], x[i + lane]);
    }
    for (; i < n; ++i) states[0] = Fn::step(states[0], x[i]);
  }
};

template <class Fn>
double reduce_part(const TensorDesc& tensor, const Nest& nest, int64_t part) {
  const Element element = element_of(tensor.dtype);
  const Class type = class_of(element);
  const ReadRow read = reader(element, type);
  double states[kLanes] = {}, row[kPart];
  Cursor cursor(&nest, part * kPart);
  for (int64_t left = std::min(kPart, tensor.numel - part * kPart); left > 0;) {
    const int64_t n = std::min(cursor.left_in_row(), left);
    const char* from = static_cast<const char*>(tensor.data) + cursor.offset(0) * item_bytes(tensor.dtype);
    read(from, nest.strides[0][0], row, n);
    if (type == kFloat32) run_simd<StepRow<Fn, float>>(reinterpret_cast<const float*>(row), n, states);
    else run_simd<StepRow<Fn, double>>(static_cast<const double*>(row), n, states);
    cursor.advance(n);
    left -= n;
  }
  double sum = 0;
  for (const double state : states) sum += state;
  return sum;
}

template <class Fn>
Status launch(const OpCall& call) {
  const ReducedList list = list_of<Fn>(call);
  std::vector<int64_t> ends;  // of the parts of each tensor, counted over all
  std::vector<Nest> nests;
  for (int i = 0; i < list.length; ++i) {
    ends.push_back((i ? ends.back() : 0) + (list.tensors[i].numel + kPart - 1) / kPart);
    nests.push_back(list.tensors[i].numel > 0 ? nest_of(as_output(list.tensors[i])) : Nest());
  }
  std::vector<double> parts(static_cast<size_t>(ends.back()));
  parallel_for(ends.back(), kPartsOfAThread, [&](int64_t begin, int64_t end) {
    for (; begin < end; ++begin) {
      const auto i = size_t(std::upper_bound(ends.begin(), ends.end(), begin) - ends.begin());
      parts[size_t(begin)] = reduce_part<Fn>(list.tensors[i], nests[i], begin - (i ? ends[i - 1] : 0));
    }
  });
  double sum = 0, before = 0;
  for (const double part : parts) sum += part;
  if (Fn::kSingles) reader(element_of(call.inputs[0].dtype), kFloat64)(call.inputs[0].data, 1, &before, 1);
  const double result = Fn::finish(sum, before);
  writer(element_of(call.outputs[0].dtype), kFloat64)(&result, call.outputs[0].data, 1, 1);
  return {};
}

Status not_one_number(const TensorDesc& tensor) {
  return Status::not_implemented("a tensor is " + text_of(tensor) + ", not one number");
}

template <class Fn>
Status supported(const OpCall& call) { return expect_real_list(call, Fn::kSingles); }

template <class Fn>
OpInfo info() {
  constexpr int kInputs = Fn::kSingles + 1;
  return {.kind = Fn::kKind, .name = Fn::kName, .min_inputs = kInputs, .max_inputs = kInputs, .num_outputs = 1,
          .input_lists = 1, .in_place = {input_bit(Fn::kSingles) - 1}};
}

template <class Fn>
KernelPtr kernel(const char* id) {
  return make_kernel({Fn::kKind, id, DeviceType::Host, 5}, {supported<Fn>, launch<Fn>});
}

}  // namespace

Status expect_real_list(const OpCall& call, int singles) {
  for (int i = 0; i < singles; ++i) {
    if (call.inputs[i].numel != 1) return not_one_number(call.inputs[i]);
  }
  for (int i = 0; i < call.num_inputs + call.num_outputs; ++i) {
    const TensorDesc& tensor = operand_of(call, i);
    const Element element = element_of(tensor.dtype);
    if (element == Element::None || class_of(element) == kInt64) {
      return Status::not_implemented("a tensor is " + name_of(tensor.dtype) + ", not a real number of 64 bits or less");
    }
  }
  return call.outputs[0].numel == 1 ? Status() : not_one_number(call.outputs[0]);
}

std::vector<OpInfo> reduction_infos() { return {info<GlobalNorm>(), info<FoundInf>()}; }

std::vector<KernelPtr> reduction_host_kernels() {
  return {kernel<GlobalNorm>("global_norm.host"), kernel<FoundInf>("found_inf.host")};
}

}  // namespace npu::lists
