#include "ops/index/index.h"

#include <algorithm>
#include <iterator>

#include "ops/copy/copy.h"
#include "ops/index/layouts.h"
#include "ops/pointwise/elements.h"

namespace npu::indexing {
namespace {

using pointwise::Element;
using pointwise::element_of;

Status expect_axis(int64_t axis, int rank, const char* which) {
  const int64_t limit = std::max(rank, 1);
  if (axis >= -limit && axis < limit) return {};
  return Status::not_implemented(std::string(which) + " has rank " + std::to_string(rank) + ", and no axis " +
                                 std::to_string(axis));
}

Status expect_flag(int64_t value, const char* which) {
  if (value == 0 || value == 1) return {};
  return Status::not_implemented(std::string(which) + " is " + std::to_string(value) + ", not 0 or 1");
}

Status expect_all_contiguous(const OpCall& call) {
  for (int i = 0; i < call.num_inputs; ++i) NPU_TRY(expect_contiguous(call.inputs[i], "an input"));
  for (int i = 0; i < call.num_outputs; ++i) NPU_TRY(expect_contiguous(call.outputs[i], "an output"));
  return {};
}

// Both hold items of one dtype.
Status expect_same_items(const TensorDesc& x, const TensorDesc& y) {
  NPU_TRY(expect_dtype(y, x.dtype, "y"));
  return expect_items(x);
}

Status expect_index(const TensorDesc& index) {
  if (index.dtype == kInt64 || index.dtype == kInt32) return {};
  return Status::not_implemented("an index is " + name_of(index.dtype) + ", not int64 or int32");
}

Status expect_number(const TensorDesc& tensor) {
  if (element_of(tensor.dtype) != Element::None) return {};
  return Status::not_implemented("a tensor is " + name_of(tensor.dtype) +
                                 ", not a real number of 64 bits or less");
}

// All index tensors have one shape, and the axes from `axis` on.
Status expect_indices(const TensorDesc& whole, const TensorDesc* indices, int depth, int64_t axis) {
  NPU_TRY(expect_axis(axis, whole.rank, "the indexed tensor"));
  if (positive_axis(axis, whole.rank) + depth > whole.rank) {
    return Status::not_implemented("the indexed tensor, " + text_of(whole) +
                                   ", has fewer axes than indices, " + std::to_string(depth) + " from axis " +
                                   std::to_string(axis));
  }
  for (int i = 0; i < depth; ++i) {
    NPU_TRY(expect_index(indices[i]));
    NPU_TRY(expect_dtype(indices[i], indices[0].dtype, "an index"));
    NPU_TRY(expect_same_shape(indices[0], indices[i], "an index", "another"));
  }
  return {};
}

// `items` is what the indices select: their shape in the place of the indexed axes.
Status expect_selected(const TensorDesc& whole, const TensorDesc& index, int depth, int64_t axis,
                       const TensorDesc& items, const char* which) {
  TensorDesc expected = items;
  const int64_t first = positive_axis(axis, whole.rank);
  expected.rank = whole.rank - depth + index.rank;
  bool fits = expected.rank <= NPU_MAX_RANK && items.rank == expected.rank;
  if (fits) {
    std::copy(whole.shape, whole.shape + first, expected.shape);
    std::copy(index.shape, index.shape + index.rank, expected.shape + first);
    std::copy(whole.shape + first + depth, whole.shape + whole.rank, expected.shape + first + index.rank);
    fits = same_shape(expected, items);
  }
  if (fits) return {};
  return Status::not_implemented(std::string(which) + " is " + text_of(items) + ", not what indices of " +
                                 text_of(index) + " select of " + text_of(whole));
}

// Whether `index` is inside `other` along all axes but one; -1 for none.
Status expect_inside(const TensorDesc& index, const TensorDesc& other, int64_t axis, const char* which) {
  bool fits = index.rank == other.rank;
  for (int i = 0; fits && i < index.rank && index.numel > 0; ++i) fits = i == axis || index.shape[i] <= other.shape[i];
  if (fits) return {};
  return Status::not_implemented(std::string("the index, ") + text_of(index) + ", is larger than " + which +
                                 ", " + text_of(other));
}

Status expect_source(const TensorDesc& index, const TensorDesc& source) {
  if (source.rank == 0 && index.rank != 0) return {};
  return expect_inside(index, source, -1, "the source");
}

Status expect_accumulates(const TensorDesc& tensor, int64_t accumulate) {
  NPU_TRY(expect_flag(accumulate, "accumulate"));
  return accumulate ? expect_number(tensor) : Status();
}

Status expect_shape_outside_axis(const TensorDesc& x, const TensorDesc& y, int64_t axis) {
  bool fits = x.rank == y.rank;
  for (int i = 0; fits && i < x.rank; ++i) fits = i == axis || x.shape[i] == y.shape[i];
  if (fits) return {};
  return Status::not_implemented("an input is " + text_of(x) + ", y is " + text_of(y) +
                                 ": they differ in more than axis " + std::to_string(axis));
}

// The coordinates of x that an axis reads, first and last.
Status expect_within(const AxisMapAttrs& attrs, int axis, int64_t size, int64_t count) {
  const int64_t first = attrs.start[axis];
  int64_t last = 0;
  if (__builtin_mul_overflow(attrs.step[axis], count - 1, &last) || __builtin_add_overflow(first, last, &last)) {
    return Status::not_implemented("axis " + std::to_string(axis) + " has no " + std::to_string(count) + " places from " +
                                   std::to_string(first) + " by " + std::to_string(attrs.step[axis]));
  }
  const int64_t low = std::min(first, last), high = std::max(first, last);
  const auto mode = static_cast<Outside>(attrs.mode);
  const int64_t margin = mode == Outside::Nothing ? 0 : mode == Outside::Reflect ? size - 1 : INT64_MAX / 4;
  if (low >= -margin && high < size + margin && (size > 0 || mode == Outside::Fill)) return {};
  return Status::not_implemented("axis " + std::to_string(axis) + " of size " + std::to_string(size) +
                                 " has no places " + std::to_string(low) + " to " + std::to_string(high) +
                                 " in mode " + std::to_string(attrs.mode));
}

AttrSchema axis_map_schema() {
  std::vector<AttrField> fields{field("mode", &AxisMapAttrs::mode)};
  for (const bool is_step : {false, true}) {
    for (uint32_t i = 0; i < NPU_MAX_RANK; ++i) {
      const size_t start = is_step ? offsetof(AxisMapAttrs, step) : offsetof(AxisMapAttrs, start);
      const auto offset = static_cast<uint32_t>(start + i * sizeof(int64_t));
      fields.push_back({(is_step ? "step" : "start") + std::to_string(i), 'q', offset, is_step ? 1.0 : 0.0});
    }
  }
  return make_schema<AxisMapAttrs>("AMAP", std::move(fields));
}

OpInfo info(OpKind kind, const char* name, int min_inputs, int max_inputs, std::optional<AttrSchema> schema,
            bool is_in_place = false, int outputs = 1, int max_outputs = 0) {
  OpInfo made{.kind = kind,
              .name = name,
              .min_inputs = min_inputs,
              .max_inputs = max_inputs,
              .num_outputs = outputs,
              .max_outputs = max_outputs,
              .schema = std::move(schema)};
  if (is_in_place) made.in_place[0] = input_bit(0);
  return made;
}

}  // namespace

std::vector<OpInfo> infos() {
  return {
      info(kIndexSelect, "IndexSelect", 2, 1 + kMaxIndices,
           make_schema<SelectAttrs>("IDXS",
                                    {field("axis", &SelectAttrs::axis), field("wrap", &SelectAttrs::wrap)})),
      info(kIndexPut, "IndexPut", 3, 2 + kMaxIndices,
           make_schema<PutAttrs>("IDXP", {field("axis", &PutAttrs::axis), field("wrap", &PutAttrs::wrap),
                                          field("accumulate", &PutAttrs::accumulate)}),
           true, 1, 2),
      info(kEmbeddingBwd, "EmbeddingBwd", 2, 2,
           make_schema<EmbeddingBwdAttrs>("EMBB",
                                          {field("padding_index", &EmbeddingBwdAttrs::padding_index)})),
      info(kGather, "Gather", 2, 2, make_schema<AxisAttrs>("GATH", {field("axis", &AxisAttrs::axis)})),
      info(kScatter, "Scatter", 3, 3,
           make_schema<ScatterAttrs>(
               "SCAT", {field("axis", &ScatterAttrs::axis), field("accumulate", &ScatterAttrs::accumulate)}),
           true),
      info(kCat, "Cat", 1, kMaxInputs, make_schema<AxisAttrs>("CATT", {field("axis", &AxisAttrs::axis)})),
      info(kSliceScatter, "SliceScatter", 2, 2,
           make_schema<SliceAttrs>("SLCE",
                                   {field("axis", &SliceAttrs::axis), field("start", &SliceAttrs::start),
                                    field("step", &SliceAttrs::step)}),
           true),
      info(kAxisMap, "AxisMap", 1, 2, axis_map_schema()),
      info(kTriangle, "Triangle", 1, 1,
           make_schema<TriangleAttrs>(
               "TRIA", {field("diagonal", &TriangleAttrs::diagonal), field("upper", &TriangleAttrs::upper)})),
      info(kOneHot, "OneHot", 1, 1, std::nullopt),
      info(kArange, "Arange", 0, 0,
           make_schema<ArangeAttrs>(
               "ARNG", {field("start", &ArangeAttrs::start), field("step", &ArangeAttrs::step)})),
      info(kSort, "Sort", 1, 1,
           make_schema<SortAttrs>(
               "SORT", {field("axis", &SortAttrs::axis), field("descending", &SortAttrs::descending)}),
           false, 2),
      info(kTopK, "TopK", 1, 1,
           make_schema<TopKAttrs>("TOPK", {field("axis", &TopKAttrs::axis), field("largest", &TopKAttrs::largest),
                                           field("sorted", &TopKAttrs::sorted)}),
           false, 2),
  };
}

Status select_supported(const OpCall& call) {
  const SelectAttrs attrs = attrs_of<SelectAttrs>(call);
  const int depth = call.num_inputs - 1;
  NPU_TRY(expect_flag(attrs.wrap, "wrap"));
  NPU_TRY(expect_same_items(call.inputs[0], call.outputs[0]));
  NPU_TRY(expect_indices(call.inputs[0], call.inputs + 1, depth, attrs.axis));
  NPU_TRY(expect_selected(call.inputs[0], call.inputs[1], depth, attrs.axis, call.outputs[0], "y"));
  return expect_all_contiguous(call);
}

Status put_supported(const OpCall& call) {
  const PutAttrs attrs = attrs_of<PutAttrs>(call);
  const TensorDesc &x = call.inputs[0], &values = call.inputs[1], &y = call.outputs[0];
  const int depth = call.num_inputs - 2;
  NPU_TRY(expect_flag(attrs.wrap, "wrap"));
  NPU_TRY(expect_accumulates(x, attrs.accumulate));
  NPU_TRY(expect_same_items(x, y));
  NPU_TRY(expect_dtype(values, x.dtype, "values"));
  NPU_TRY(expect_same_shape(x, y, "x", "y"));
  NPU_TRY(expect_indices(x, call.inputs + 2, depth, attrs.axis));
  NPU_TRY(expect_selected(x, call.inputs[2], depth, attrs.axis, values, "values"));
  if (call.num_outputs == 2) {
    NPU_TRY(expect_dtype(call.outputs[1], x.dtype, "what is saved"));
    NPU_TRY(expect_same_shape(values, call.outputs[1], "values", "what is saved"));
  }
  return expect_all_contiguous(call);
}

Status embedding_bwd_supported(const OpCall& call) {
  const TensorDesc &dy = call.inputs[0], &index = call.inputs[1], &dw = call.outputs[0];
  NPU_TRY(expect_number(dy));
  NPU_TRY(expect_dtype(dw, dy.dtype, "dw"));
  NPU_TRY(expect_indices(dw, &index, 1, 0));
  NPU_TRY(expect_selected(dw, index, 1, 0, dy, "dy"));
  return expect_all_contiguous(call);
}

Status gather_supported(const OpCall& call) {
  const TensorDesc &x = call.inputs[0], &index = call.inputs[1], &y = call.outputs[0];
  const int64_t axis = attrs_of<AxisAttrs>(call).axis;
  NPU_TRY(expect_index(index));
  NPU_TRY(expect_same_items(x, y));
  NPU_TRY(expect_axis(axis, x.rank, "x"));
  NPU_TRY(expect_same_shape(index, y, "the index", "y"));
  NPU_TRY(expect_inside(index, x, positive_axis(axis, x.rank), "x"));
  return expect_all_contiguous(call);
}

Status scatter_supported(const OpCall& call) {
  const TensorDesc &x = call.inputs[0], &index = call.inputs[1], &source = call.inputs[2],
                   &y = call.outputs[0];
  const ScatterAttrs attrs = attrs_of<ScatterAttrs>(call);
  NPU_TRY(expect_index(index));
  NPU_TRY(expect_accumulates(x, attrs.accumulate));
  NPU_TRY(expect_same_items(x, y));
  NPU_TRY(expect_dtype(source, x.dtype, "the source"));
  NPU_TRY(expect_same_shape(x, y, "x", "y"));
  NPU_TRY(expect_axis(attrs.axis, x.rank, "x"));
  NPU_TRY(expect_inside(index, x, positive_axis(attrs.axis, x.rank), "x"));
  NPU_TRY(expect_source(index, source));
  return expect_all_contiguous(call);
}

Status cat_supported(const OpCall& call) {
  const TensorDesc& y = call.outputs[0];
  const int64_t given = attrs_of<AxisAttrs>(call).axis, axis = positive_axis(given, y.rank);
  NPU_TRY(expect_axis(given, y.rank, "y"));
  int64_t size = 0;
  for (int i = 0; i < call.num_inputs; ++i) {
    const TensorDesc& x = call.inputs[i];
    const TensorDesc part = x.rank + 1 == y.rank ? unsqueezed(x, axis) : x;
    NPU_TRY(expect_same_items(y, x));
    NPU_TRY(expect_shape_outside_axis(part, y, axis));
    size += y.rank == 0 ? 1 : part.shape[axis];
  }
  if (y.rank != 0 && size == y.shape[axis]) return {};
  return Status::not_implemented("the inputs have " + std::to_string(size) + " places along axis " +
                                 std::to_string(axis) + ", y is " + text_of(y));
}

Status slice_scatter_supported(const OpCall& call) {
  const TensorDesc &x = call.inputs[0], &source = call.inputs[1], &y = call.outputs[0];
  const SliceAttrs attrs = attrs_of<SliceAttrs>(call);
  NPU_TRY(expect_same_items(x, y));
  NPU_TRY(expect_dtype(source, x.dtype, "the source"));
  NPU_TRY(expect_same_shape(x, y, "x", "y"));
  NPU_TRY(expect_axis(attrs.axis, y.rank, "y"));
  if (y.rank == 0) return Status::not_implemented("y has rank 0, and no slices");
  const int64_t axis = positive_axis(attrs.axis, y.rank);
  const TensorDesc part = source.rank + 1 == y.rank ? unsqueezed(source, axis) : source;
  NPU_TRY(expect_shape_outside_axis(part, y, axis));
  const int64_t count = part.shape[axis], size = y.shape[axis];
  const bool starts_inside = attrs.step > 0 && attrs.start >= 0 && attrs.start < size;
  if (count == 0 || (starts_inside && count - 1 <= (size - 1 - attrs.start) / attrs.step)) return {};
  return Status::not_implemented(std::to_string(count) + " places from " + std::to_string(attrs.start) +
                                 " by " + std::to_string(attrs.step) + " are not inside axis " +
                                 std::to_string(axis) + " of size " + std::to_string(size));
}

Status axis_map_supported(const OpCall& call) {
  const TensorDesc &x = call.inputs[0], &y = call.outputs[0];
  const AxisMapAttrs attrs = attrs_of<AxisMapAttrs>(call);
  NPU_TRY(expect_same_items(x, y));
  if (attrs.mode < 0 || attrs.mode >= kModes) {
    return Status::not_implemented("mode is " + std::to_string(attrs.mode) + ", not 0 to 4");
  }
  const bool fills = static_cast<Outside>(attrs.mode) == Outside::Fill;
  if (call.num_inputs != (fills ? 2 : 1)) {
    return Status::not_implemented(fills ? "what fills is missing: mode 1 needs a second input"
                                         : "only mode 1 has something to fill with");
  }
  if (fills) NPU_TRY(expect_dtype(call.inputs[1], x.dtype, "what fills"));
  if (fills && call.inputs[1].numel != 1)
    return Status::not_implemented("what fills has more than one element");
  if (x.rank > y.rank) return other_shape(x, y, "x", "y");
  const MapLayout map = layout_of_map(call);
  for (int i = 0; y.numel != 0 && i < y.rank; ++i)
    NPU_TRY(expect_within(attrs, i, map.sizes[i], map.shape[i]));
  return expect_all_contiguous(call);
}

Status triangle_supported(const OpCall& call) {
  NPU_TRY(expect_same_items(call.inputs[0], call.outputs[0]));
  NPU_TRY(expect_same_shape(call.inputs[0], call.outputs[0], "x", "y"));
  NPU_TRY(expect_flag(attrs_of<TriangleAttrs>(call).upper, "upper"));
  if (call.inputs[0].rank < 2) return Status::not_implemented("x is not a matrix: " + text_of(call.inputs[0]));
  return expect_all_contiguous(call);
}

Status one_hot_supported(const OpCall& call) {
  const TensorDesc &index = call.inputs[0], &y = call.outputs[0];
  NPU_TRY(expect_index(index));
  NPU_TRY(expect_dtype(y, kInt64, "y"));
  if (y.rank != index.rank + 1 || !std::equal(index.shape, index.shape + index.rank, y.shape)) {
    return other_shape(index, y, "the index", "y");
  }
  return expect_all_contiguous(call);
}

Status arange_supported(const OpCall& call) {
  const ArangeAttrs attrs = attrs_of<ArangeAttrs>(call);
  const TensorDesc& y = call.outputs[0];
  const Element element = element_of(y.dtype);
  NPU_TRY(expect_number(y));
  if (element == Element::Bool) return Status::not_implemented("y is bool, which has no range");
  if (element == Element::Float16 || element == Element::BFloat16) {
    return Status::not_implemented("a range of " + name_of(y.dtype) + " is rounded otherwise by PyTorch");
  }
  const bool is_real = element <= Element::Float64;
  if (!is_real &&
      (attrs.start != double(int64_t(attrs.start)) || attrs.step != double(int64_t(attrs.step)))) {
    return Status::not_implemented("integers have no range from " + std::to_string(attrs.start) + " by " +
                                   std::to_string(attrs.step));
  }
  if (y.rank != 1) return Status::not_implemented("y is not a vector: " + text_of(y));
  return expect_all_contiguous(call);
}

namespace {

// Checks a call whose outputs have some elements of an axis of x, in order.
Status expect_ordered(const OpCall& call, int64_t given_axis) {
  const TensorDesc &x = call.inputs[0], &values = call.outputs[0], &indices = call.outputs[1];
  NPU_TRY(expect_number(x));
  NPU_TRY(expect_dtype(values, x.dtype, "values"));
  NPU_TRY(expect_dtype(indices, kInt64, "indices"));
  NPU_TRY(expect_axis(given_axis, x.rank, "x"));
  NPU_TRY(expect_same_shape(values, indices, "values", "indices"));
  const int64_t axis = positive_axis(given_axis, x.rank);
  NPU_TRY(expect_shape_outside_axis(values, x, axis));
  if (x.rank != 0 && values.shape[axis] > x.shape[axis]) return other_shape(x, values, "x", "values");
  if (x.numel >= int64_t{1} << 31) return Status::not_implemented("x has 2^31 elements or more");
  return expect_all_contiguous(call);
}

}  // namespace

Status sort_supported(const OpCall& call) {
  const SortAttrs attrs = attrs_of<SortAttrs>(call);
  NPU_TRY(expect_flag(attrs.descending, "descending"));
  return expect_ordered(call, attrs.axis);
}

Status top_supported(const OpCall& call) {
  const TopKAttrs attrs = attrs_of<TopKAttrs>(call);
  NPU_TRY(expect_flag(attrs.largest, "largest"));
  NPU_TRY(expect_flag(attrs.sorted, "sorted"));
  return expect_ordered(call, attrs.axis);
}

std::vector<KernelPtr> host_kernels() {
  return joined<KernelPtr>({reading_host_kernels(), writing_host_kernels(), making_host_kernels(),
                 sorting_host_kernels(), top_host_kernels(), copying_kernels(DeviceType::Host)});
}

#ifdef NPU_WITH_CUDA
std::vector<KernelPtr> cuda_kernels() {
  return joined<KernelPtr>({reading_cuda_kernels(), writing_cuda_kernels(), making_cuda_kernels(),
                 sorting_cuda_kernels(), copying_kernels(DeviceType::Cuda)});
}
#endif

}  // namespace npu::indexing
