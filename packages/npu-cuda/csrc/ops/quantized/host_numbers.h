// Vectors of float32 for the loops over integers, and how bytes become such.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "ops/pointwise/vector_instructions.h"

namespace npu::quantized {

using pointwise::VectorOf;

template <int kBytes>
struct Numbers {
  static constexpr int kLanes = kBytes / 4;
  using V = typename VectorOf<float, kBytes>::type;
  using Unaligned = typename VectorOf<float, kBytes>::unaligned;
  using Ints = typename VectorOf<int32_t, kBytes>::type;
  using Four = typename VectorOf<float, 16>::type;

  static NPU_INLINE V load(const float* from) { return *reinterpret_cast<const Unaligned*>(from); }
  static NPU_INLINE void store(V numbers, float* to) { *reinterpret_cast<Unaligned*>(to) = numbers; }
  static NPU_INLINE V to_floats(Ints integers) { return __builtin_convertvector(integers, V); }

  // As many bytes as there are lanes, with their signs.
  static NPU_INLINE Ints widen(const uint8_t* from) {
#if NPU_HAS_X86_BUILTINS
    using Bytes = typename VectorOf<char, 16>::type;
    if constexpr (kBytes == 64) {
      const Bytes bytes = *reinterpret_cast<const typename VectorOf<char, 16>::unaligned*>(from);
      return __builtin_ia32_pmovsxbd512_mask(bytes, Ints{}, pointwise::kAllLanes);
    } else if constexpr (kBytes == 32) {
      int64_t bytes;
      std::memcpy(&bytes, from, sizeof(bytes));
      return __builtin_ia32_pmovsxbd256(std::bit_cast<Bytes>(typename VectorOf<int64_t, 16>::type{bytes, 0}));
    }
#endif
    return __builtin_convertvector(*reinterpret_cast<const typename VectorOf<int8_t, kLanes>::unaligned*>(from), Ints);
  }

  // The signed low half of a byte in each lane, whatever is above it.
  static NPU_INLINE V low_half(Ints bytes) {
#if NPU_HAS_X86_BUILTINS
    if constexpr (kBytes == 64) {
      constexpr V table = {0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1};
      return __builtin_ia32_permvarsf512_mask(table, bytes, table, pointwise::kAllLanes);
    }
#endif
    return to_floats(bytes << 28 >> 28);
  }

  // The sum of lanes of each of four vectors.
  static NPU_INLINE Four sums(V a, V b, V c, V d) {
    const Four ab = pairs<0>(quarter(a), quarter(b)), cd = pairs<0>(quarter(c), quarter(d));
    return pairs<1>(ab, cd);
  }

 private:
  // The sum of the quarters of a vector, or of its halves, or it.
  static NPU_INLINE Four quarter(V value) {
    Four parts[kBytes / 16], total;
    std::memcpy(parts, &value, sizeof(value));
    total = parts[0];
#pragma GCC unroll 4
    for (int i = 1; i < kBytes / 16; ++i) total += parts[i];
    return total;
  }

  // Sums of pairs of lanes of one, then of the other: lanes that are 2 apart, or neighbours.
  template <int kNeighbours>
  static NPU_INLINE Four pairs(Four a, Four b) {
    using Lanes = typename VectorOf<int32_t, 16>::type;
    if constexpr (kNeighbours) {
      return __builtin_shuffle(a, b, Lanes{0, 2, 4, 6}) + __builtin_shuffle(a, b, Lanes{1, 3, 5, 7});
    } else {
      return __builtin_shuffle(a, b, Lanes{0, 1, 4, 5}) + __builtin_shuffle(a, b, Lanes{2, 3, 6, 7});
    }
  }
};

}  // namespace npu::quantized
