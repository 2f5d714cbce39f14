// Indices in device code. One outside its axis stops the kernel, as in PyTorch: the launch fails, and nothing
// is read or written outside of a tensor.
#pragma once

#include "ops/elementwise_grid.h"
#include "ops/fast_division.h"
#include "ops/index/layouts.h"
#include "ops/kernel_loading.h"

namespace npu::indexing {

// Numbers of items and places have 32 bits.
inline Status expect_near(const OpCall& call) {
  constexpr int64_t kFar = int64_t{1} << 31;
  for (int i = 0; i < call.num_inputs; ++i) {
    if (call.inputs[i].numel >= kFar) return Status::not_implemented("an input has 2^31 elements or more");
  }
  for (int i = 0; i < call.num_outputs; ++i) {
    if (call.outputs[i].numel >= kFar) return Status::not_implemented("an output has 2^31 elements or more");
  }
  return {};
}

template <Status (*supported)(const OpCall&)>
Status supported_near(const OpCall& call) {
  NPU_TRY(supported(call));
  return expect_near(call);
}

struct alignas(16) Item16 {
  uint64_t low, high;
};

// Calls f with an item of so many bytes: 1, 2, 4, 8 or 16.
template <class F>
Status with_item_of(int64_t bytes, F f) {
  switch (bytes) {
    case 1: return f(uint8_t{});
    case 2: return f(uint16_t{});
    case 4: return f(uint32_t{});
    case 8: return f(uint64_t{});
    default: return f(Item16{});
  }
}

__device__ inline int64_t index_at(const void* index, bool is_long, uint32_t place) {
  return is_long ? static_cast<const int64_t*>(index)[place] : static_cast<const int32_t*>(index)[place];
}

__device__ inline int64_t inside(int64_t index, int64_t size, bool wraps) {
  if (wraps && index < 0) index += size;
  if (index < 0 || index >= size) __trap();
  return index;
}

// The slots that tuples of indices name.
struct DeviceSlots {
  int depth;
  bool is_long, wraps;
  const void* indices[kMaxIndices];
  int64_t sizes[kMaxIndices], strides[kMaxIndices];

  // Finds the slots of several places; all indices are asked for before one is used.
  template <int kCount>
  __device__ void find(const uint32_t (&places)[kCount], int64_t (&slots)[kCount]) const {
#pragma unroll
    for (int j = 0; j < kCount; ++j) slots[j] = 0;
    for (int d = 0; d < depth; ++d) {
      int64_t named[kCount];
#pragma unroll
      for (int j = 0; j < kCount; ++j) named[j] = index_at(indices[d], is_long, places[j]);
#pragma unroll
      for (int j = 0; j < kCount; ++j) slots[j] += inside(named[j], sizes[d], wraps) * strides[d];
    }
  }
  __device__ int64_t operator()(uint32_t place) const {
    const uint32_t places[1] = {place};
    int64_t slots[1];
    find(places, slots);
    return slots[0];
  }
};

inline DeviceSlots device_slots(const SlotLayout& layout, const TensorDesc* indices) {
  DeviceSlots slots{layout.depth, indices[0].dtype == kInt64, layout.wraps, {}, {}, {}};
  for (int d = 0; d < layout.depth; ++d) {
    slots.indices[d] = indices[d].data;
    slots.sizes[d] = layout.sizes[d];
    slots.strides[d] = layout.strides[d];
  }
  return slots;
}

struct Offsets {
  int64_t whole, source;
};

// The elements of an index tensor, with the offsets of what each names and of its source.
struct DeviceWalk {
  int rank, axis;
  bool is_long;
  const void* index;
  int64_t axis_size;
  FastDivision shape[NPU_MAX_RANK];
  int64_t whole_strides[NPU_MAX_RANK], source_strides[NPU_MAX_RANK];

  __device__ Offsets operator()(uint32_t place) const {
    Offsets offsets{0, 0};
    uint32_t rest = place;
    for (int i = rank - 1; i >= 0; --i) {
      uint32_t next, at;
      shape[i](rest, &next, &at);
      const int64_t named = i == axis ? inside(index_at(index, is_long, place), axis_size, false) : at;
      offsets.whole += named * whole_strides[i];
      offsets.source += at * source_strides[i];
      rest = next;
    }
    return offsets;
  }
};

inline DeviceWalk device_walk(const WalkLayout& walk, const TensorDesc& index) {
  DeviceWalk device{walk.rank, walk.axis, index.dtype == kInt64, index.data, walk.axis_size, {}, {}, {}};
  for (int i = 0; i < walk.rank; ++i) {
    device.shape[i] = FastDivision(static_cast<uint32_t>(walk.shape[i]));
    device.whole_strides[i] = walk.whole_strides[i];
    device.source_strides[i] = walk.source_strides[i];
  }
  return device;
}

}  // namespace npu::indexing
