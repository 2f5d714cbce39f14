// What the text of a kernel that is compiled at run time uses of CUDA, for g++: see nvrtc.cpp.
#pragma once

#include <math.h>
#include <string.h>

#define __global__ __attribute__((visibility("default")))
#define __device__ static
#define __launch_bounds__(...)

struct npu_index {
  unsigned x, y, z;
};
static const npu_index *npu_thread, *npu_block;
extern "C" void npu_emulator_use(const npu_index* thread, const npu_index* block) { npu_thread = thread, npu_block = block; }
#define threadIdx (*npu_thread)
#define blockIdx (*npu_block)

inline unsigned __umulhi(unsigned a, unsigned b) { return static_cast<unsigned>((static_cast<unsigned long long>(a) * b) >> 32); }

template <class To, class From>
To same_bits(From x) {
  To y;
  static_assert(sizeof y == sizeof x);
  return memcpy(&y, &x, sizeof y), y;
}
inline float __uint_as_float(unsigned bits) { return same_bits<float>(bits); }
inline float half_to_float(unsigned short x) { return same_bits<_Float16>(x); }
inline unsigned short float_to_half(float x) { return same_bits<unsigned short>(static_cast<_Float16>(x)); }
inline unsigned short float_to_bfloat16(float x) {
  const auto bits = same_bits<unsigned>(x);
  return x != x ? 0x7fff : static_cast<unsigned short>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

template <class T>
T opaque(T x) {
  volatile T y = x;
  return y;
}
