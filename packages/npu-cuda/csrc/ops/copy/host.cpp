#include <algorithm>
#include <utility>

#include "ops/copy/copy.h"
#include "ops/host_copy.h"
#include "ops/host_simd.h"

namespace npu {
namespace {

struct Bits128 {
  uint64_t low, high;
};

// Rows of n items.
template <class T>
struct CopyRows {
  [[gnu::always_inline]] static inline void run(const T* x, int64_t x_row, int64_t x_stride, T* y, int64_t y_row,
                                                int64_t y_stride, int64_t rows, int64_t n) {
    const bool is_contiguous = x_stride == 1 && y_stride == 1;
    const int64_t bytes = n * int64_t{sizeof(T)};
    for (int64_t row = 0; row < rows; ++row, x += x_row, y += y_row) {
      if (is_contiguous) copy_row(reinterpret_cast<const char*>(x), reinterpret_cast<char*>(y), bytes);
      else copy_items(x, x_stride, y, y_stride, n);
    }
  }

  [[gnu::always_inline]] static inline void copy_items(const T* __restrict x, int64_t x_stride, T* __restrict y,
                                                       int64_t y_stride, int64_t n) {
    for (int64_t i = 0; i < n; ++i) y[i * y_stride] = x[i * x_stride];
  }
};

// y[i][j] = x[j][i], in squares that both stay in the first cache; whole ones of up to 8 bytes an item in registers.
template <class T>
struct CopyTransposed {
  static constexpr int64_t kSide = 16;
  static constexpr int kLanes = sizeof(T) == 8 ? 4 : 8;
  static constexpr bool kHasVectors = sizeof(T) >= 2 && sizeof(T) <= 8;
  static constexpr int64_t kNarrow = 64;

  // Rows of y that are short, such as those of a panel, stay in the caches: few rows of x are read from start to end then.
  [[gnu::always_inline]] static inline void run(const T* __restrict x, int64_t x_stride, T* __restrict y,
                                                int64_t y_stride, int64_t rows, int64_t columns) {
    const auto copy = [=](int64_t top, int64_t left, int64_t width) __attribute__((always_inline)) {
      copy_part(x + left * x_stride + top, x_stride, y + top * y_stride + left, y_stride, std::min(rows - top, kSide),
                std::min(columns - left, width));
    };
    if (columns <= kNarrow) {
      for (int64_t left = 0; left < columns; left += kLanes) {
        for (int64_t top = 0; top < rows; top += kSide) copy(top, left, kLanes);
      }
    } else {
      for (int64_t top = 0; top < rows; top += kSide) {
        for (int64_t left = 0; left < columns; left += kSide) copy(top, left, kSide);
      }
    }
  }

  [[gnu::always_inline]] static inline void copy_part(const T* __restrict x, int64_t x_stride, T* __restrict y,
                                                      int64_t y_stride, int64_t rows, int64_t columns) {
    if constexpr (kHasVectors) {
      if (rows == kSide && columns % kLanes == 0) {
        for (int64_t i = 0; i < kSide; i += kLanes) {
          for (int64_t j = 0; j < columns; j += kLanes) {
            copy_vectors(x + j * x_stride + i, x_stride, y + i * y_stride + j, y_stride);
          }
        }
        return;
      }
    }
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < columns; ++j) y[i * y_stride + j] = x[j * x_stride + i];
    }
  }

  // As many vectors as each has lanes: halves of pairs of them change places, then quarters, and so on.
  [[gnu::always_inline]] static inline void copy_vectors(const T* x, int64_t x_stride, T* y, int64_t y_stride) {
    using V [[gnu::vector_size(kLanes * sizeof(T))]] = T;
    using Unaligned [[gnu::vector_size(kLanes * sizeof(T)), gnu::aligned(sizeof(T)), gnu::may_alias]] = T;
    V rows[kLanes];
#pragma GCC unroll 8
    for (int row = 0; row < kLanes; ++row) rows[row] = *reinterpret_cast<const Unaligned*>(x + row * x_stride);
    if constexpr (kLanes == 8) exchange<V, 4>(rows);
    exchange<V, 2>(rows);
    exchange<V, 1>(rows);
#pragma GCC unroll 8
    for (int row = 0; row < kLanes; ++row) *reinterpret_cast<Unaligned*>(y + row * y_stride) = rows[row];
  }

  // Lanes of the one, and of the other from kLanes on, of the first of two vectors afterwards, or of the second.
  template <class V, int kDistance, size_t... kLane>
  [[gnu::always_inline]] static inline V lanes(bool is_second, std::index_sequence<kLane...>) {
    constexpr int from_other = kLanes - kDistance;
    if (is_second) return V{T(kLane & kDistance ? kLanes + kLane : kLane + kDistance)...};
    return V{T(kLane & kDistance ? from_other + kLane : kLane)...};
  }

  template <class V, int kDistance>
  [[gnu::always_inline]] static inline void exchange(V* rows) {
    constexpr std::make_index_sequence<kLanes> all;
    const V first = lanes<V, kDistance>(false, all), second = lanes<V, kDistance>(true, all);
#pragma GCC unroll 8
    for (int row = 0; row < kLanes; ++row) {
      if ((row & kDistance) != 0) continue;
      const V a = rows[row], b = rows[row + kDistance];
      rows[row] = __builtin_shuffle(a, b, first);
      rows[row + kDistance] = __builtin_shuffle(a, b, second);
    }
  }
};

// Calls `each` with the start of every slice along the axes but `inner` and the last one.
template <class T, class Each>
void for_each_slice(const StridedPair& pair, int inner, const T* x, T* y, Each each) {
  int64_t index[NPU_MAX_RANK] = {};
  for (;;) {
    each(x, y);
    int axis = pair.last() - 1;
    for (; axis >= 0; --axis) {
      if (axis == inner) continue;
      x += pair.x_strides[axis];
      y += pair.y_strides[axis];
      if (++index[axis] < pair.shape[axis]) break;
      x -= pair.x_strides[axis] * pair.shape[axis];
      y -= pair.y_strides[axis] * pair.shape[axis];
      index[axis] = 0;
    }
    if (axis < 0) return;
  }
}

template <class T>
Status copy(const TensorDesc& source, const TensorDesc& target) {
  const auto* x = static_cast<const T*>(source.data);
  auto* y = static_cast<T*>(target.data);
  if (target.numel == 0) return {};
  const StridedPair pair = collapse(source, target);
  const int last = pair.last(), other = pair.transposed_axis();
  const int64_t size = pair.shape[last], x_stride = pair.x_strides[last], y_stride = pair.y_strides[last];
  if (other < 0) {
    const int outer = std::max(0, last - 1);
    const int64_t rows = last == 0 ? 1 : pair.shape[outer];
    for_each_slice(pair, outer, x, y, [&](const T* from, T* to) {
      run_simd<CopyRows<T>>(from, pair.x_strides[outer], x_stride, to, pair.y_strides[outer], y_stride, rows, size);
    });
  } else {
    for_each_slice(pair, other, x, y, [&](const T* from, T* to) {
      run_simd<CopyTransposed<T>>(from, x_stride, to, pair.y_strides[other], pair.shape[other], size);
    });
  }
  return {};
}

Status launch_copy(const OpCall& call) { return copy_on_host(call.inputs[0], call.outputs[0]); }

}  // namespace

Status copy_on_host(const TensorDesc& x, const TensorDesc& y) {
  switch (item_bytes(x.dtype)) {
    case 1: return copy<uint8_t>(x, y);
    case 2: return copy<uint16_t>(x, y);
    case 4: return copy<uint32_t>(x, y);
    case 8: return copy<uint64_t>(x, y);
    default: return copy<Bits128>(x, y);
  }
}

std::vector<KernelPtr> copy_host_kernels() {
  return {make_kernel({OpKind::Copy, "copy.any.host", DeviceType::Host, 10}, {copy_supported, launch_copy, copy_cost})};
}

}  // namespace npu
