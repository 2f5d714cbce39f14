#include "ops/pointwise/host_rows.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "ops/floats.h"
#include "ops/host_simd.h"
#include "ops/pointwise/pointwise.h"

namespace npu::pointwise {
namespace {

template <class Lane, class E>
[[gnu::always_inline]] inline Lane read(E element) {
  if constexpr (std::is_same_v<E, Bool>) return element.byte != 0;
  else if constexpr (std::is_arithmetic_v<E>) return static_cast<Lane>(element);
  else return static_cast<Lane>(to_float(element));
}

// Floats become narrow integers by way of int32, as in ATen: of what no int32 is, the processor makes the smallest one.
template <class E, class Lane>
using IntegerOf = std::conditional_t<std::is_floating_point_v<Lane> && sizeof(E) <= 4, int32_t, int64_t>;

template <class E, class Lane>
[[gnu::always_inline]] inline E write(Lane number) {
  if constexpr (std::is_same_v<E, Bool>) return {static_cast<uint8_t>(number != 0)};
  else if constexpr (std::is_floating_point_v<E>) return static_cast<E>(number);
  else if constexpr (std::is_integral_v<E>) return static_cast<E>(static_cast<IntegerOf<E, Lane>>(number));
  else return from_float<E>(static_cast<float>(number));
}

template <class E, class Lane>
struct Read {
  [[gnu::always_inline]] static inline void run(const E* __restrict elements, int64_t stride,
                                                Lane* __restrict numbers, int64_t n) {
    if (stride == 1) {
      for (int64_t i = 0; i < n; ++i) numbers[i] = read<Lane>(elements[i]);
    } else if (stride == 0) {
      const Lane number = read<Lane>(*elements);
      for (int64_t i = 0; i < n; ++i) numbers[i] = number;
    } else {
      for (int64_t i = 0; i < n; ++i) numbers[i] = read<Lane>(elements[i * stride]);
    }
  }
};

template <class E, class Lane>
struct Write {
  [[gnu::always_inline]] static inline void run(const Lane* __restrict numbers, E* __restrict elements,
                                                int64_t stride, int64_t n) {
    if (stride == 1) {
      for (int64_t i = 0; i < n; ++i) elements[i] = write<E>(numbers[i]);
    } else {
      for (int64_t i = 0; i < n; ++i) elements[i * stride] = write<E>(numbers[i]);
    }
  }
};

template <class Loop, class... Args>
void run_widest(Args... args) {
#if defined(__x86_64__)
  if (has_avx512()) return run_with_avx512<Loop>(args...);
#endif
  run_simd<Loop>(args...);
}

template <class E, class Lane>
void read_row(const void* elements, int64_t stride, void* numbers, int64_t n) {
  run_widest<Read<E, Lane>>(static_cast<const E*>(elements), stride, static_cast<Lane*>(numbers), n);
}

template <class E, class Lane>
void write_row(const void* numbers, void* elements, int64_t stride, int64_t n) {
  run_widest<Write<E, Lane>>(static_cast<const Lane*>(numbers), static_cast<E*>(elements), stride, n);
}

#if defined(__x86_64__)
// The processor converts halves, which the compiler does not use for the bits of a struct.
[[gnu::target("avx512f,avx512vl,f16c")]] void read_halves(const void* elements, int64_t stride, void* numbers, int64_t n) {
  const auto* from = static_cast<const Half*>(elements);
  auto* to = static_cast<float*>(numbers);
  int64_t i = 0;
  for (; stride == 1 && i + 16 <= n; i += 16) {
    _mm512_storeu_ps(to + i, _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i))));
  }
  for (; i < n; ++i) to[i] = _cvtsh_ss(from[i * stride].bits);
}

[[gnu::target("avx512f,avx512vl,f16c")]] void write_halves(const void* numbers, void* elements, int64_t stride, int64_t n) {
  const auto* from = static_cast<const float*>(numbers);
  auto* to = static_cast<Half*>(elements);
  int64_t i = 0;
  for (; stride == 1 && i + 16 <= n; i += 16) {
    const __m256i halves = _mm512_cvtps_ph(_mm512_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i), halves);
  }
  for (; i < n; ++i) to[i * stride] = {_cvtss_sh(from[i], _MM_FROUND_TO_NEAREST_INT)};
}

[[gnu::target("avx2,f16c")]] void read_halves_by_8(const void* elements, int64_t stride, void* numbers, int64_t n) {
  const auto* from = static_cast<const Half*>(elements);
  auto* to = static_cast<float*>(numbers);
  int64_t i = 0;
  for (; stride == 1 && i + 8 <= n; i += 8) {
    _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i))));
  }
  for (; i < n; ++i) to[i] = _cvtsh_ss(from[i * stride].bits);
}

[[gnu::target("avx2,f16c")]] void write_halves_by_8(const void* numbers, void* elements, int64_t stride, int64_t n) {
  const auto* from = static_cast<const float*>(numbers);
  auto* to = static_cast<Half*>(elements);
  int64_t i = 0;
  for (; stride == 1 && i + 8 <= n; i += 8) {
    const __m128i halves = _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), halves);
  }
  for (; i < n; ++i) to[i * stride] = {_cvtss_sh(from[i], _MM_FROUND_TO_NEAREST_INT)};
}

// The upper half of each number, rounded as from_float rounds it, in the place of the lower one.
[[gnu::target("avx2"), gnu::always_inline]] inline __m256i rounded_to_bfloat16(const float* from) {
  const __m256 numbers = _mm256_loadu_ps(from);
  const __m256i bits = _mm256_castps_si256(numbers), upper = _mm256_srli_epi32(bits, 16);
  const __m256i odd = _mm256_and_si256(upper, _mm256_set1_epi32(1));
  const __m256i sum = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
  const __m256i nan = _mm256_or_si256(upper, _mm256_set1_epi32(0x40));
  return _mm256_blendv_epi8(_mm256_srli_epi32(sum, 16), nan, _mm256_castps_si256(_mm256_cmp_ps(numbers, numbers, _CMP_UNORD_Q)));
}

// The compiler packs the halves of vectors of 32 bytes one by one.
[[gnu::target("avx2")]] void write_bfloat16_by_16(const void* numbers, void* elements, int64_t stride, int64_t n) {
  const auto* from = static_cast<const float*>(numbers);
  auto* to = static_cast<BFloat16*>(elements);
  int64_t i = 0;
  for (; stride == 1 && i + 16 <= n; i += 16) {
    const __m256i crossed = _mm256_packus_epi32(rounded_to_bfloat16(from + i), rounded_to_bfloat16(from + i + 8));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i), _mm256_permute4x64_epi64(crossed, 0xd8));
  }
  for (; i < n; ++i) to[i * stride] = from_float<BFloat16>(from[i]);
}
#endif

// In the order of Element.
template <class Lane>
constexpr ReadRow kReaders[] = {read_row<float, Lane>,   read_row<Half, Lane>,    read_row<BFloat16, Lane>,
                                read_row<double, Lane>,  read_row<int64_t, Lane>, read_row<int32_t, Lane>,
                                read_row<int16_t, Lane>, read_row<int8_t, Lane>,  read_row<uint8_t, Lane>,
                                read_row<Bool, Lane>};
template <class Lane>
constexpr WriteRow kWriters[] = {write_row<float, Lane>,   write_row<Half, Lane>,    write_row<BFloat16, Lane>,
                                 write_row<double, Lane>,  write_row<int64_t, Lane>, write_row<int32_t, Lane>,
                                 write_row<int16_t, Lane>, write_row<int8_t, Lane>,  write_row<uint8_t, Lane>,
                                 write_row<Bool, Lane>};

bool converts_halves(Element element, Class type) {
#if defined(__x86_64__)
  return element == Element::Float16 && type == kFloat32 && has_avx2() && __builtin_cpu_supports("f16c");
#else
  return false;
#endif
}

}  // namespace

ReadRow reader(Element element, Class type) {
#if defined(__x86_64__)
  if (converts_halves(element, type)) return has_avx512() ? read_halves : read_halves_by_8;
#endif
  const auto place = static_cast<size_t>(element);
  if (type == kFloat32) return kReaders<float>[place];
  return type == kFloat64 ? kReaders<double>[place] : kReaders<int64_t>[place];
}

WriteRow writer(Element element, Class type) {
#if defined(__x86_64__)
  const bool by_16 = element == Element::BFloat16 && type == kFloat32 && has_avx2() && !has_avx512();
  if (by_16) return write_bfloat16_by_16;
  if (converts_halves(element, type)) return has_avx512() ? write_halves : write_halves_by_8;
#endif
  const auto place = static_cast<size_t>(element);
  if (type == kFloat32) return kWriters<float>[place];
  return type == kFloat64 ? kWriters<double>[place] : kWriters<int64_t>[place];
}

}  // namespace npu::pointwise
