// Copies of short rows on the host: a call of memcpy takes longer than they do.
#pragma once

#include <cstdint>
#include <cstring>

namespace npu {

// All of them are read before the first is written: a read that follows a write 4096 bytes away would wait for it.
template <int kBytes>
[[gnu::always_inline]] inline void move_bytes(const char* from, char* to) {
  constexpr int most = 32;
  if constexpr (kBytes > most) {
    using Part [[gnu::vector_size(most), gnu::aligned(1), gnu::may_alias]] = char;
    Part parts[kBytes / most];
    for (int i = 0; i < kBytes / most; ++i) parts[i] = reinterpret_cast<const Part*>(from)[i];
    for (int i = 0; i < kBytes / most; ++i) reinterpret_cast<Part*>(to)[i] = parts[i];
  } else {
    char bytes[kBytes];
    std::memcpy(bytes, from, kBytes);
    std::memcpy(to, bytes, kBytes);
  }
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
  } else if (n >= 128) {
    for (int64_t i = 0; i + 128 < n; i += 128) move_bytes<128>(from + i, to + i);
    move_bytes<128>(from + n - 128, to + n - 128);
  } else if (n >= 64) {
    move_ends<64>(from, to, n);
  } else if (n >= 32) {
    move_ends<32>(from, to, n);
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
