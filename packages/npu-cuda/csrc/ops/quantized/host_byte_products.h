// Vectors of bytes times vectors of bytes, with exact sums of integers, by the instructions of each set.
#pragma once

#include "ops/quantized/host_dynamic_loops.h"
#include "ops/quantized/host_numbers.h"

namespace npu::quantized {

// A vector of bytes of W times integers of A: the sums of four bytes in each lane, exactly.
template <int kBytes, bool kIsPacked>
struct Products : Numbers<kBytes> {
  using Base = Numbers<kBytes>;
  using typename Base::Ints, typename Base::V;
  using Bytes = typename VectorOf<char, kBytes>::type;
  using Unsigned = typename VectorOf<uint8_t, kBytes>::type;
  using Shorts = typename VectorOf<int16_t, kBytes>::type;
  static constexpr int64_t kStep = step_bytes(kIsPacked, kBytes);
  static constexpr int64_t kSums = 2 * kBytes, kScales = kStep - kBytes;  // in a step
#if NPU_HAS_X86_BUILTINS
  static constexpr bool kHasVnni = kBytes == 64, kHasAvx2 = kBytes == 32;
#else
  static constexpr bool kHasVnni = false, kHasAvx2 = false;
#endif
  // The instruction of VNNI multiplies bytes without a sign by bytes with one. So packed integers of W have 8 added, for
  // AVX2 as well; and of 8 bits, integers of A have 128. Sums begin at what takes that off again.
  static constexpr int kMiddle = 8;
  static constexpr uint8_t kSign = kHasVnni && !kIsPacked ? 128 : 0;  // of integers of A, exchanged

  // Bytes that are multiplied by bytes of A: of packed ones the even integers, and the odd ones.
  struct Weights {
    Bytes first, second;
    Ints start;
  };

  template <class T>
  static NPU_INLINE T read(const void* from) {
    return (T)(*static_cast<const typename VectorOf<char, kBytes>::unaligned*>(from));
  }

  // Splits packed integers into the even ones and the odd ones, with 8 added to each.
  static NPU_INLINE Weights split(Unsigned bytes) {
    using Words = typename VectorOf<uint16_t, kBytes>::type;
    const Unsigned both = bytes + uint8_t{0x88};  // 16 * (odd + 8) + (even + 8)
    return {(Bytes)(both & uint8_t{15}), (Bytes)((Unsigned)((Words)both >> 4) & uint8_t{15}), Ints{}};
  }

  static NPU_INLINE Weights unpack(const uint8_t* from) {
    const Unsigned bytes = read<Unsigned>(from);
    if constexpr (kIsPacked) return split(bytes);
#if NPU_HAS_X86_BUILTINS
    if constexpr (kHasVnni) {
      const Ints middle = Ints{} + int32_t(0x80808080);
      return {(Bytes)bytes, Bytes{}, -__builtin_ia32_vpdpbusd_v16si(Ints{}, middle, (Ints)bytes)};
    }
#endif
    return {(Bytes)bytes, Bytes{}, Ints{}};
  }

  static NPU_INLINE Ints dot(const Weights& w, const char* x) {
    const Bytes first = read<Bytes>(x);
    [[maybe_unused]] const Bytes second = kIsPacked ? read<Bytes>(x + kBytes) : first;
#if NPU_HAS_X86_BUILTINS
    if constexpr (kHasVnni && kIsPacked) {
      const Ints sums = __builtin_ia32_vpdpbusd_v16si(read<Ints>(x + kSums), (Ints)w.first, (Ints)first);
      return __builtin_ia32_vpdpbusd_v16si(sums, (Ints)w.second, (Ints)second);
    } else if constexpr (kHasVnni) {
      return __builtin_ia32_vpdpbusd_v16si(w.start, (Ints)first, (Ints)w.first);
    }
#endif
    // Two products of bytes are less than 2^15: |W| is 128 at most, and |A| 127; four of packed ones are, too.
    if constexpr (kIsPacked) return read<Ints>(x + kSums) + fours(pairs(w.first, first) + pairs(w.second, second));
    else return fours(pairs(w.first, first));
  }

  // What is added to integers of W for add_words, and taken off again by what its sums begin at.
  static constexpr int kOffset = kIsPacked ? kMiddle : kHasVnni ? 128 : 0;

  // Each lane has four integers of W, with their offset. Adds their products with those of a word of A.
  static NPU_INLINE Ints add_words(Ints sums, Bytes w, Ints word) {
#if NPU_HAS_X86_BUILTINS
    if constexpr (kHasVnni) return __builtin_ia32_vpdpbusd_v16si(sums, (Ints)w, word);
#endif
    return sums + fours(pairs(w, (Bytes)word));
  }

  static NPU_INLINE Ints sums_of_four(const char* x) {
    const Shorts two = read<Shorts>(x);
    return fours((two << 8 >> 8) + (two >> 8));
  }

 private:
  // Sums of two neighbouring products.
  static NPU_INLINE Shorts pairs(Bytes w, Bytes x) {
#if NPU_HAS_X86_BUILTINS
    if constexpr (kHasAvx2 && kIsPacked) return __builtin_ia32_pmaddubsw256(w, x);
    else if constexpr (kHasAvx2) return __builtin_ia32_pmaddubsw256(__builtin_ia32_pabsb256(w), __builtin_ia32_psignb256(x, w));
#endif
    const Shorts ws = (Shorts)w, xs = (Shorts)x;
    return (ws << 8 >> 8) * (xs << 8 >> 8) + (ws >> 8) * (xs >> 8);
  }

  // Sums of two neighbours.
  static NPU_INLINE Ints fours(Shorts pairs) {
#if NPU_HAS_X86_BUILTINS
    if constexpr (kHasAvx2) return __builtin_ia32_pmaddwd256(pairs, Shorts{} + int16_t{1});
#endif
    const Ints both = (Ints)pairs;
    return (both << 16 >> 16) + (both >> 16);
  }
};

}  // namespace npu::quantized
