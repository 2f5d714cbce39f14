#include "ops/recurrent/host_cells.h"

#include "ops/gemm/tile.h"
#include "ops/host_simd.h"
#include "ops/pointwise/math.h"
#include "ops/pointwise/vector_math.h"

namespace npu::recurrent {
namespace {

using pointwise::Value;
using pointwise::VectorOf;

// Adds the gates of input and state, which are `units` numbers from `at` on.
template <Cell kCell, int kBytes>
struct Step {
  using V = Value<typename VectorOf<float, kBytes>::type>;

  static NPU_INLINE V load(const float* from) { return V::of(gemm::load_numbers<float, kBytes>(from)); }
  static NPU_INLINE void store(V value, float* to) {
    *reinterpret_cast<typename VectorOf<float, kBytes>::unaligned*>(to) = value.raw;
  }

  static NPU_INLINE void run(const CellRows& it, int64_t row, int64_t at) {
    const float* const sums = it.sums + row * it.sums_row + at;
    const float* const x = it.x + row * it.x_row + at;
    const int64_t state = row * it.state_row + at;
    const auto of_state = [&](int gate) { return load(sums + gate * it.units); };
    const auto of_input = [&](int gate) { return load(x + gate * it.x_gate); };
    const auto both = [&](int gate) { return of_state(gate) + of_input(gate); };
    if constexpr (kCell == Cell::Tanh) {
      store(tanh(both(0)), it.next + state);
    } else if constexpr (kCell == Cell::Relu) {
      const V sum = both(0);
      store(select(sum < 0, V(0), sum), it.next + state);
    } else if constexpr (kCell == Cell::Lstm) {
      const V in = sigmoid(both(0)), forget = sigmoid(both(1)), candidate = tanh(both(2)), out = sigmoid(both(3));
      const V c = forget * load(it.c + state) + in * candidate;
      store(c, it.c + state);
      store(out * tanh(c), it.next + state);
    } else {
      const V reset = sigmoid(both(0)), update = sigmoid(both(1));
      const V candidate = tanh(of_input(2) + reset * of_state(2));
      store((load(it.h + state) - candidate) * update + candidate, it.next + state);
    }
  }
};

template <Cell kCell>
struct OfCell {
  template <int kBytes>
  struct Loop {
    static NPU_INLINE void run(const CellRows& it) {
      constexpr int64_t lanes = kBytes / int64_t{sizeof(float)};
      for (int64_t row = 0; row < it.rows; ++row) {
        for (int64_t at = 0; at < it.units; at += lanes) Step<kCell, kBytes>::run(it, row, at);
      }
    }
  };
};

}  // namespace

CellLoop cell_loop(Cell cell) {
  static const CellLoop loops[] = {
      widest<float, OfCell<Cell::Tanh>::template Loop>(), widest<float, OfCell<Cell::Relu>::template Loop>(),
      widest<float, OfCell<Cell::Lstm>::template Loop>(), widest<float, OfCell<Cell::Gru>::template Loop>()};
  return loops[int(cell)];
}

}  // namespace npu::recurrent
