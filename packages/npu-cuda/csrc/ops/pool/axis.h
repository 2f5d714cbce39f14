// One spatial axis of a pool or a resampling: which elements of the image each position of the result is made of, and
// with which weights. The host makes tables of it, device code asks for each element, in numbers of 32 bits.
#pragma once

#include <cstdint>

#include "ops/pointwise/value.h"

namespace npu::pool {

enum class Mode : int32_t { Window, Adaptive, Nearest, NearestExact, Linear, LinearAligned };
inline constexpr int kModes = 6;

// Every `step`th element from `begin` on, before `end`.
template <class Int>
struct IndexRange {
  Int begin, end, step;
};

template <class Int>
struct AxisOf {
  using Range = IndexRange<Int>;

  Mode mode;
  Int size, count;  // of the image, and of the result
  Int kernel, stride, padding, dilation;
  bool counts_padding;
  Int divisor;  // of a mean; 0: the number of elements
  double scale;     // of the image to the result, rounded to the type of the numbers

  // The elements of position `at`, of a window also those before the image.
  template <class Number>
  NPU_INLINE Range reach(Int at) const {
    if (mode == Mode::Window) {
      const Int begin = at * stride - padding, end = begin + (kernel - 1) * dilation + 1;
      return {begin, end < size ? end : size, dilation};
    }
    if (mode == Mode::Adaptive) {  // of numbers below 2^32, which divide without a call
      const auto all = static_cast<uint32_t>(size), parts = static_cast<uint32_t>(count), from = static_cast<uint32_t>(at) * all;
      return {static_cast<Int>(from / parts), static_cast<Int>((from + all + parts - 1) / parts), 1};
    }
    const Int first = first_source<Number>(at);
    const bool has_next = (mode == Mode::Linear || mode == Mode::LinearAligned) && count != size && first + 1 < size;
    return {first, first + (has_next ? 2 : 1), 1};
  }

  template <class Number>
  NPU_INLINE Range elements(Int at) const {
    Range range = reach<Number>(at);
    if (range.begin < 0) {  // it is less than a padding, of 32 bits, before the image
      const auto before = static_cast<uint32_t>(-range.begin), step = static_cast<uint32_t>(range.step);
      range.begin += static_cast<Int>((before - 1) / step + 1) * range.step;
    }
    return range;
  }

  // The positions that may be made of an element: those of a dilated window may step over it.
  template <class Number>
  NPU_INLINE Range positions(Int element) const {
    if (mode == Mode::Window) {
      const Int last = element + padding;  // of the padded image
      return {windows_before(last - (kernel - 1) * dilation), windows_before(last + 1), 1};
    }
    return {first_where([&](Int at) { return reach<Number>(at).end > element; }),
            first_where([&](Int at) { return reach<Number>(at).begin > element; }), 1};
  }

  template <class Number>
  NPU_INLINE Number weight(Int at, Int element) const {
    if (mode == Mode::Window || mode == Mode::Adaptive) return Number(1) / Number(divisor != 0 ? divisor : elements_of_mean(at));
    if (mode == Mode::Nearest || mode == Mode::NearestExact) return 1;
    const Number next = source<Number>(at) - Number(first_source<Number>(at));
    const Number inside = next < Number(1) ? next : Number(1);
    // ATen adds such an element once more, by 0: of an infinity it makes NaN, which stays an infinity here.
    if (count == size || first_source<Number>(at) + 1 == size) return 1;
    return element == first_source<Number>(at) ? Number(1) - inside : inside;
  }

 private:
  NPU_INLINE Int elements_of_mean(Int at) const {
    const Range range = elements<float>(at);
    if (mode == Mode::Adaptive || !counts_padding) return range.end - range.begin;
    const Int begin = at * stride - padding, end = begin + kernel, most = size + padding;
    return (end < most ? end : most) - begin;
  }

  // As ATen computes it: in the type of the numbers, with the same roundings.
  template <class Number>
  NPU_INLINE Number source(Int at) const {
    if (mode == Mode::Nearest || mode == Mode::LinearAligned) return Number(at) * Number(scale);
    const Number middle = (Number(at) + Number(0.5)) * Number(scale);
    if (mode == Mode::NearestExact) return middle;
    const Number from = middle - Number(0.5);
    return from > 0 ? from : 0;
  }

  template <class Number>
  NPU_INLINE Int first_source(Int at) const {
    const Number from = source<Number>(at);
    const auto first = from < Number(size) ? static_cast<Int>(from) : size;
    return first < size - 1 ? first : size - 1;
  }

  // Returns the number of windows that begin before an element of the padded image.
  NPU_INLINE Int windows_before(Int element) const {
    if (element <= 0) return 0;
    const auto before = static_cast<Int>(static_cast<uint32_t>(element - 1) / static_cast<uint32_t>(stride)) + 1;
    return before < count ? before : count;
  }

  // The first position of which a claim is true that is true of all later ones, too.
  template <class Claim>
  NPU_INLINE Int first_where(Claim claim) const {
    Int low = 0, high = count;
    while (low < high) {
      const Int middle = (low + high) / 2;
      if (claim(middle)) high = middle;
      else low = middle + 1;
    }
    return low;
  }
};

using Range = IndexRange<int64_t>;
using Axis = AxisOf<int64_t>;

}  // namespace npu::pool
