// Loops of the host compiled several times: for the x86-64 that every build may run on, for AVX2 with FMA,
// and where it is asked for AVX-512, also with its products of bytes (VNNI), chosen at run time. A loop is a
// struct with a static function `run` marked [[gnu::always_inline]], which becomes part of each caller. On
// other processors there is only the default version.
#pragma once

namespace npu {

// The bytes of the widest vectors that may be used: 64, or what the variable NPU_CUDA_VECTOR_BYTES says. Tests set it
// to 32 or 16, to run the loops of other processors.
int most_vector_bytes();
// Returns the bytes of the vectors that are used.
int vector_bytes();

#if defined(__x86_64__) && defined(NPU_NARROW)
constexpr bool has_avx2() { return false; }
constexpr bool has_avx512() { return false; }
constexpr bool has_vnni() { return false; }
#elif defined(__x86_64__)
inline bool has_avx2() {
  static const bool has = most_vector_bytes() >= 32 && __builtin_cpu_supports("avx2") &&
                          __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2") &&
                          __builtin_cpu_supports("f16c");
  return has;
}

inline bool has_avx512() {
  static const bool has = most_vector_bytes() >= 64 && has_avx2() && __builtin_cpu_supports("avx512f") &&
                          __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                          __builtin_cpu_supports("avx512vl");
  return has;
}

inline bool has_vnni() {
  static const bool has = has_avx512() && __builtin_cpu_supports("avx512vnni");
  return has;
}
#endif

#if defined(__x86_64__)
template <class Loop, class... Args>
[[gnu::target("avx2,fma,bmi2,f16c"), gnu::noinline]] void run_with_avx2(Args... args) {
  Loop::run(args...);
}

template <class Loop, class... Args>
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,bmi2,f16c"), gnu::noinline]] void run_with_avx512(Args... args) {
  Loop::run(args...);
}

template <class Loop, class... Args>
[[gnu::target("avx512vnni,avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,bmi2,f16c"), gnu::noinline]] void run_with_vnni(Args... args) {
  Loop::run(args...);
}
#endif

// The version of a loop over vectors of so many bytes that fits this processor. Numbers of 8 bytes have none of 64:
// their loops wait for memory, or call the library.
template <class Lane, template <int> class Loop, class... Args>
auto widest_of(void (*narrow)(Args...)) {
#if defined(__x86_64__)
  if constexpr (sizeof(Lane) == 4) {
    if (has_avx512()) return &run_with_avx512<Loop<64>, Args...>;
  }
  if (has_avx2()) return &run_with_avx2<Loop<32>, Args...>;
#endif
  return narrow;
}

template <class Lane, template <int> class Loop>
auto widest() { return widest_of<Lane, Loop>(&Loop<16>::run); }

template <class Loop, class... Args>
void run_simd(Args... args) {
#if defined(__x86_64__)
  if (has_avx2()) return run_with_avx2<Loop>(args...);
#endif
  Loop::run(args...);
}

}  // namespace npu
