// Loops of the host compiled twice: for the x86-64 that every build may run on, and for AVX2 with FMA, chosen at run
// time. A loop is a struct with a static function `run` marked [[gnu::always_inline]], which becomes part of either
// caller. On other processors there is only the default version.
#pragma once

namespace npu {

#if defined(__x86_64__)
inline bool has_avx2() {
  static const bool has =
      __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
  return has;
}

template <class Loop, class... Args>
[[gnu::target("avx2,fma,bmi2"), gnu::noinline]] void run_with_avx2(Args... args) {
  Loop::run(args...);
}
#endif

template <class Loop, class... Args>
void run_simd(Args... args) {
#if defined(__x86_64__)
  if (has_avx2()) return run_with_avx2<Loop>(args...);
#endif
  Loop::run(args...);
}

}  // namespace npu
