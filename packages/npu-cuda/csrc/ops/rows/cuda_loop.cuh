// The kernels of ops over rows: threads of a warp, or of a block, share a row. `Columns` reads and writes its
// places. Where rows are aligned accesses of 16 bytes and short enough, what differs from row to row is read
// once and stays in registers; elsewhere each pass reads it again.
#pragma once

#include "ops/fast_division.h"
#include "ops/pointwise/cuda_rows.cuh"
#include "ops/rows/row_call.h"

namespace npu::rows {

using pointwise::Access;
using pointwise::read_element;
using pointwise::write_element;

inline constexpr int kMostAlong = 5;
inline constexpr int kMostSteps = 2;

// Offsets of a nest of one or more axes, in 32 bits.
struct DeviceNest {
  int rank;
  FastDivision shape[NPU_MAX_RANK];
  uint32_t strides[kMostAlong][NPU_MAX_RANK];

  __device__ void offsets(uint32_t i, int operands, uint32_t* at) const {
    if (rank == 1) {
      for (int k = 0; k < operands; ++k) at[k] = i * strides[k][0];
      return;
    }
    for (int k = 0; k < operands; ++k) at[k] = 0;
    for (int axis = 0; axis < rank; ++axis) {
      uint32_t index;
      shape[axis](i, &i, &index);
      for (int k = 0; k < operands; ++k) at[k] += index * strides[k][axis];
    }
  }
};

struct DeviceOperand {
  void* data;
  Element element;
};

struct DeviceRows {
  DeviceNest rows, columns;
  DeviceOperand along[kMostAlong];
  DeviceOperand numbers[2];
  uint32_t count, width;
  bool has_result;
  bool is_wide;  // rows of all operands consist of aligned accesses of 16 bytes
  double eps;
};

// Some columns of a thread: neighbours that are one access, or a step apart, so that threads read neighbours.
struct Places {
  uint32_t first, step;
  int count;
};

// The i-th columns of one of the threads that share a row.
template <class Columns, int kThreadsOfRow>
__device__ Places places_of(const DeviceRows& rows, uint32_t thread, uint32_t i) {
  constexpr int kVector = Columns::kVector;
  if constexpr (Columns::kIsWide) {
    const uint32_t first = (thread + i * kThreadsOfRow) * kVector;
    return {first, 1, first < rows.width ? kVector : 0};
  } else {
    const uint32_t first = thread + i * kVector * kThreadsOfRow;
    const uint32_t left = first < rows.width ? (rows.width - first - 1) / kThreadsOfRow + 1 : 0;
    return {first, kThreadsOfRow, static_cast<int>(min(left, uint32_t{kVector}))};
  }
}

// Places of a row of tensors of any dtype and strides.
template <class Number, int kInputs>
struct AnyColumns {
  static constexpr int kVector = 1;
  static constexpr bool kIsWide = false;
  using Wide = AnyColumns;
  using Vector = Value<Number>[kVector];
  const DeviceRows& rows;
  uint32_t start[kInputs + 1];

  __device__ AnyColumns(const DeviceRows& of, uint32_t row) : rows(of) {
    of.rows.offsets(row, kInputs + 1, start);
  }
  template <int kFirst>
  __device__ void load(Places places, Vector* in) const {
    static_assert(kFirst == 0);  // none is held
    uint32_t at[kInputs];
    rows.columns.offsets(places.first, kInputs, at);
#pragma unroll
    for (int k = 0; k < kInputs; ++k) {
      in[k][0] = read_element<Number>(rows.along[k].data, rows.along[k].element, start[k] + at[k]);
    }
  }
  __device__ void store(Places places, const Vector& values) const {
    uint32_t at[kInputs + 1];
    rows.columns.offsets(places.first, kInputs + 1, at);
    write_element(values[0], rows.along[kInputs].data, rows.along[kInputs].element,
                  start[kInputs] + at[kInputs]);
  }
};

// Contiguous rows of one dtype.
template <class X, int kInputs, bool kWide = false>
struct PlainColumns {
  static constexpr int kVector = kVectorBytes / sizeof(X);
  static constexpr bool kIsWide = kWide;
  using Wide = PlainColumns<X, kInputs, true>;
  using Vector = Value<float>[kVector];
  using Items = Access<X, kVector>;
  const X* in_[kInputs];
  X* out_;

  __device__ PlainColumns(const DeviceRows& of, uint32_t row) {
    uint32_t start[kInputs + 1];
    of.rows.offsets(row, kInputs + 1, start);
#pragma unroll
    for (int k = 0; k < kInputs; ++k) in_[k] = static_cast<const X*>(of.along[k].data) + start[k];
    out_ = static_cast<X*>(of.along[kInputs].data) + start[kInputs];
  }
  __device__ Items read(int k, Places places) const {
    if constexpr (kWide) {
      return *reinterpret_cast<const Items*>(in_[k] + places.first);
    } else {
      Items items{};
#pragma unroll
      for (int j = 0; j < kVector; ++j) {
        if (j < places.count) items.items[j] = in_[k][places.first + j * places.step];
      }
      return items;
    }
  }
  static __device__ void unpack(const Items& items, Vector& to) {
#pragma unroll
    for (int j = 0; j < kVector; ++j) to[j] = pointwise::read(items.items[j]);
  }
  // The inputs from kFirst on.
  template <int kFirst>
  __device__ void load(Places places, Vector* in) const {
#pragma unroll
    for (int k = kFirst; k < kInputs; ++k) unpack(read(k, places), in[k]);
  }
  __device__ void store(Places places, const Vector& values) const {
    Items items;
#pragma unroll
    for (int j = 0; j < kVector; ++j) items.items[j] = pointwise::write<X>(values[j]);
    if constexpr (kWide) {
      *reinterpret_cast<Items*>(out_ + places.first) = items;
    } else {
#pragma unroll
      for (int j = 0; j < kVector; ++j) {
        if (j < places.count) out_[places.first + j * places.step] = items.items[j];
      }
    }
  }
};

// The totals over the threads of a row, the same in each of them; `shared` has a number for each warp and
// total, of which a block writes each once.
template <bool kIsSum, int kThreadsOfRow, int kCount, class V>
__device__ void join_threads(V (&totals)[kCount], V* shared) {
  constexpr int warps = kThreadsOfRow / 32;
  const auto join_lanes = [&](int lanes) {
    for (int distance = lanes / 2; distance > 0; distance /= 2) {
      for (V& total : totals) total = join<kIsSum>(total, V::of(__shfl_xor_sync(~0u, total.raw, distance)));
    }
  };
  join_lanes(32);
  if constexpr (warps > 1) {
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    for (int k = 0; k < kCount && lane == 0; ++k) shared[k * warps + warp] = totals[k];
    __syncthreads();
    for (int k = 0; k < kCount; ++k) totals[k] = shared[k * warps + lane % warps];
    join_lanes(warps);
  }
}

// The inputs that differ from row to row: of x, gamma and beta the first, of x, dy and gamma the first two.
template <class F>
inline constexpr int kRowInputs = F::kMade > 0 || F::kInputs == 1 ? 1 : 2;

// One row. kHeld: accesses of a thread to each input that differs from row to row, whose values are held; 0
// reads all again in each pass.
template <class F, class Columns, class Number, int kThreadsOfRow, int kHeld>
struct RowOfThreads {
  using V = Value<Number>;
  static constexpr int kVector = Columns::kVector, kHeldInputs = kHeld > 0 ? kRowInputs<F> : 0;
  const DeviceRows& rows;
  Columns columns;
  V* shared;
  uint32_t thread;
  V s[kNumbers] = {V(0), V(0), V(0), V(0)};
  V held[kHeld + 1][kHeldInputs + 1][kVector];

  __device__ RowOfThreads(const DeviceRows& of, uint32_t row, V* memory)
      : rows(of), columns(of, row), shared(memory), thread(threadIdx.x % kThreadsOfRow) {
    if constexpr (kHeld > 0) hold();
  }

  // Everything is read before anything is used.
  __device__ void hold() {
    typename Columns::Items items[kHeld][kHeldInputs];
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      const Places places = places_of<Columns, kThreadsOfRow>(rows, thread, i);
      for (int k = 0; k < kHeldInputs; ++k) {
        if (places.count > 0) items[i][k] = columns.read(k, places);
        else items[i][k] = {};
      }
    }
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      for (int k = 0; k < kHeldInputs; ++k) Columns::unpack(items[i][k], held[i][k]);
    }
  }

  // Calls each(places, inputs) for all accesses of the thread; it may change what is held of the first input.
  template <class Each>
  __device__ void each_access(Each each) {
    V in[F::kInputs][kVector];
    if constexpr (kHeld == 0) {
      for (uint32_t i = 0;; ++i) {
        const Places places = places_of<Columns, kThreadsOfRow>(rows, thread, i);
        if (places.count == 0) return;
        columns.template load<0>(places, in);
        each(places, in);
      }
    } else {
#pragma unroll
      for (int i = 0; i < kHeld; ++i) {
        const Places places = places_of<Columns, kThreadsOfRow>(rows, thread, i);
        if (places.count == 0) break;
        if constexpr (F::kInputs > kHeldInputs) columns.template load<kHeldInputs>(places, in);
#pragma unroll
        for (int j = 0; j < kVector; ++j) {
          for (int k = 0; k < kHeldInputs; ++k) in[k][j] = held[i][k][j];
        }
        each(places, in);
#pragma unroll
        for (int j = 0; j < kVector; ++j) held[i][0][j] = in[0][j];
      }
    }
  }

  // Calls each(inputs of a place, j) for the places of an access.
  template <class Each>
  static __device__ void each_place(Places places, V (*in)[kVector], Each each) {
#pragma unroll
    for (int j = 0; j < kVector; ++j) {
      if (kVector > 1 && !Columns::kIsWide && j >= places.count) continue;
      V of_place[F::kInputs];
      for (int k = 0; k < F::kInputs; ++k) of_place[k] = in[k][j];
      each(of_place, j);
    }
  }

  // The totals of steps, in one pass.
  template <class... Step>
  __device__ void reduce() {
    constexpr bool is_sum = (Step::is_sum && ...);
    V totals[] = {V(Step::is_sum ? 0.0 : -INFINITY)...};
    each_access([&](Places places, V (*in)[kVector]) {
      each_place(places, in, [&](const V* of_place, int j) {
        int k = 0;
        const auto add = [&](V term, bool is_kept) {
          totals[k] = join<is_sum>(totals[k], term);
          if (is_kept) in[0][j] = term;
          ++k;
        };
        (add(Step::template term<V>(of_place, s), Step::is_kept), ...);
      });
    });
    join_threads<is_sum, kThreadsOfRow>(totals, shared);
    shared += sizeof...(Step) * (kThreadsOfRow / 32);
    int k = 0;
    (Step::template finish<V>(totals[k++], V(rows.width), rows.eps, s), ...);
  }

  // The kept term is held in place of the first input, which no such result needs, or computed again.
  template <class... Each>
  __device__ V kept(Steps<Each...>, const V* in) const {
    using Step = typename KeptOf<Each...>::type;
    if constexpr (std::is_void_v<Step>) return V(0);
    else if constexpr (kHeld > 0) return in[0];
    else return Step::template term<V>(in, s);
  }

  template <class... Each>
  __device__ void run(uint32_t row, Steps<Each...> steps) {
#pragma unroll
    for (int i = 0; i < F::kGiven; ++i) {
      s[F::kFirstNumber + i] = read_element<Number>(rows.numbers[i].data, rows.numbers[i].element, row);
    }
    if constexpr (F::kIsOnePass) reduce<Each...>();
    else (reduce<Each>(), ...);
    if constexpr (F::kHasResult) {
      if (rows.has_result) {
        each_access([&](Places places, V (*in)[kVector]) {
          V results[kVector];
          each_place(places, in, [&](const V* of_place, int j) {
            results[j] = F::template result<V>(of_place, kept(steps, of_place), s);
          });
          columns.store(places, results);
        });
      }
    }
    if (thread != 0) return;
#pragma unroll
    for (int i = 0; i < F::kMade; ++i) {
      if (rows.numbers[i].data)
        write_element(s[F::kFirstNumber + i], rows.numbers[i].data, rows.numbers[i].element, row);
    }
  }
};

// Of small blocks more run at once where threads hold much.
template <int kHeld>
inline constexpr int kBlockThreads = kHeld > 0 ? 128 : 256;

template <class F, class Columns, class Number, int kThreadsOfRow, int kHeld>
__global__ void __launch_bounds__(kBlockThreads<kHeld>, 1) row_kernel(const DeviceRows rows) {
  __shared__ Value<Number> shared[kMostSteps * kThreadsOfRow / 32];
  constexpr uint32_t rows_of_block = kBlockThreads<kHeld> / kThreadsOfRow;
  const uint32_t row = blockIdx.x * rows_of_block + threadIdx.x / kThreadsOfRow;
  if (row >= rows.count) return;  // a whole warp, or block
  const typename F::Reductions steps;
  if constexpr (kHeld > 0) {
    using Wide = RowOfThreads<F, typename Columns::Wide, Number, kThreadsOfRow, kHeld>;
    if (rows.is_wide) return Wide(rows, row, shared).run(row, steps);
  }
  RowOfThreads<F, Columns, Number, kThreadsOfRow, 0>(rows, row, shared).run(row, steps);
}

}  // namespace npu::rows
