// Copies of short rows on the host: a call of memcpy takes longer than they do.
#pragma once

#include <cstdint>
#include <cstring>

namespace npu {

template <int kBytes>
[[gnu::always_inline]] inline void move_bytes(const char* from, char* to) {
  char bytes[kBytes];
  std::memcpy(bytes, from, kBytes);
  std::memcpy(to, bytes, kBytes);
}

// The two halves may overlap.
template <int kBytes>
[[gnu::always_inline]] inline void move_ends(const char* from, char* to, int64_t n) {
  move_bytes<kBytes>(from, to);
  move_bytes<kBytes>(from + n - kBytes, to + n - kBytes);
}

// Part of a loop that is compiled for vectors: see host_simd.h.
[[gnu::always_inline]] inline void copy_row(const char* from, char* to, int64_t n) {
  constexpr int64_t long_row = 512;
  if (n >= long_row) {
    std::memcpy(to, from, static_cast<size_t>(n));
  } else if (n >= 32) {
    for (int64_t i = 0; i + 32 < n; i += 32) move_bytes<32>(from + i, to + i);
    move_bytes<32>(from + n - 32, to + n - 32);
  } else if (n >= 16) {
    move_ends<16>(from, to, n);
  } else if (n >= 8) {
    move_ends<8>(from, to, n);
  } else if (n >= 4) {
    move_ends<4>(from, to, n);
  } else if (n >= 2) {
    move_ends<2>(from, to, n);
  } else if (n == 1) {
    *to = *from;
  }
}

}  // namespace npu
