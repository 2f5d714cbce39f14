// The device functions of CUDA that do not wait: atomics, loads, fast math, bits. Each replaces the
// function of the same name. One thread runs at a time, so an atomic is a plain read and write; that it now and
// then lets other threads run keeps loops that wait for a value from hanging.
#pragma once

#include <algorithm>
#include <bit>

#include "emulator/block.h"

namespace npu::emulator {

template <class T, class F>
T atomic(T* address, F next) {
  static unsigned count = 0;
  if (++count % 16 == 0) block().pause();
  const T old = *address;
  *address = next(old);
  return old;
}

template <class T>
using Same = std::type_identity_t<T>;

}  // namespace npu::emulator

template <class T>
T atomicAdd(T* address, npu::emulator::Same<T> value) {
  return npu::emulator::atomic(address, [&](T old) { return T(old + value); });
}
template <class T>
T atomicSub(T* address, npu::emulator::Same<T> value) {
  return npu::emulator::atomic(address, [&](T old) { return T(old - value); });
}
template <class T>
T atomicMin(T* address, npu::emulator::Same<T> value) {
  return npu::emulator::atomic(address, [&](T old) { return std::min(old, T(value)); });
}
template <class T>
T atomicMax(T* address, npu::emulator::Same<T> value) {
  return npu::emulator::atomic(address, [&](T old) { return std::max(old, T(value)); });
}
template <class T>
T atomicAnd(T* address, npu::emulator::Same<T> value) {
  return npu::emulator::atomic(address, [&](T old) { return T(old & value); });
}
template <class T>
T atomicOr(T* address, npu::emulator::Same<T> value) {
  return npu::emulator::atomic(address, [&](T old) { return T(old | value); });
}
template <class T>
T atomicXor(T* address, npu::emulator::Same<T> value) {
  return npu::emulator::atomic(address, [&](T old) { return T(old ^ value); });
}
template <class T>
T atomicExch(T* address, npu::emulator::Same<T> value) {
  return npu::emulator::atomic(address, [&](T) { return T(value); });
}
template <class T>
T atomicCAS(T* address, npu::emulator::Same<T> expected, npu::emulator::Same<T> value) {
  return npu::emulator::atomic(address, [&](T old) { return old == expected ? T(value) : old; });
}
inline unsigned atomicInc(unsigned* address, unsigned limit) {
  return npu::emulator::atomic(address, [&](unsigned old) { return old >= limit ? 0u : old + 1; });
}
inline unsigned atomicDec(unsigned* address, unsigned limit) {
  return npu::emulator::atomic(address, [&](unsigned old) { return old == 0 || old > limit ? limit : old - 1; });
}

inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __threadfence_system() {}
inline void __nanosleep(unsigned) { npu::emulator::block().pause(); }
[[noreturn]] inline void __trap() { npu::emulator::block().fail("__trap()"); }

template <class T>
T __ldg(const T* address) {
  return *address;
}
template <class T>
T __ldcs(const T* address) {
  return *address;
}
template <class T>
void __stcs(T* address, npu::emulator::Same<T> value) {
  *address = value;
}

inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline double rsqrt(double x) { return 1.0 / std::sqrt(x); }
inline float __expf(float x) { return std::exp(x); }
inline float __logf(float x) { return std::log(x); }
inline float __powf(float x, float y) { return std::pow(x, y); }
inline float __fdividef(float x, float y) { return x / y; }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fsqrt_rn(float x) { return std::sqrt(x); }
inline float __fdiv_rn(float x, float y) { return x / y; }
inline float __fadd_rn(float x, float y) { return x + y; }
inline float __fsub_rn(float x, float y) { return x - y; }
inline float __fmul_rn(float x, float y) { return x * y; }
inline float __fmaf_rn(float x, float y, float z) { return std::fma(x, y, z); }
inline double __dadd_rn(double x, double y) { return x + y; }
inline double __dmul_rn(double x, double y) { return x * y; }
inline float __saturatef(float x) { return x > 0.0f ? std::min(x, 1.0f) : 0.0f; }
inline float __int_as_float(int bits) { return std::bit_cast<float>(bits); }
inline float __uint_as_float(unsigned bits) { return std::bit_cast<float>(bits); }
inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline long long __double_as_longlong(double x) { return std::bit_cast<long long>(x); }

inline int __popc(unsigned bits) { return std::popcount(bits); }
inline int __popcll(unsigned long long bits) { return std::popcount(bits); }
inline int __clz(int bits) { return std::countl_zero(static_cast<unsigned>(bits)); }
inline int __ffs(int bits) { return bits == 0 ? 0 : std::countr_zero(static_cast<unsigned>(bits)) + 1; }
inline unsigned __umulhi(unsigned a, unsigned b) { return static_cast<unsigned>((uint64_t{a} * b) >> 32); }

inline unsigned __reduce_add_sync(unsigned mask, unsigned value,
                                  npu::emulator::Where where = npu::emulator::Where::current()) {
  const auto add = [](uint64_t a, uint64_t b) { return a + b; };
  return npu::emulator::reduce("__reduce_add_sync", mask, value, add, where);
}
inline unsigned __reduce_max_sync(unsigned mask, unsigned value,
                                  npu::emulator::Where where = npu::emulator::Where::current()) {
  const auto larger = [](uint64_t a, uint64_t b) { return std::max(a, b); };
  return npu::emulator::reduce("__reduce_max_sync", mask, value, larger, where);
}

// In device code CUDA has these in the global namespace.
inline int min(int a, int b) { return std::min(a, b); }
inline int max(int a, int b) { return std::max(a, b); }
inline unsigned min(unsigned a, unsigned b) { return std::min(a, b); }
inline unsigned max(unsigned a, unsigned b) { return std::max(a, b); }
inline long min(long a, long b) { return std::min(a, b); }
inline long max(long a, long b) { return std::max(a, b); }
inline long long min(long long a, long long b) { return std::min(a, b); }
inline long long max(long long a, long long b) { return std::max(a, b); }
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }
inline double min(double a, double b) { return fmin(a, b); }
inline double max(double a, double b) { return fmax(a, b); }
