// The attributes of reductions: which axes of the input are reduced, as a mask of bits, and further numbers.
#pragma once

#include <algorithm>
#include <vector>

#include "core/op_info.h"
#include "ops/pointwise/value.h"

namespace npu::reduce {

struct Axes {
  int64_t axes = 0;  // 0: all

  static std::vector<AttrField> fields() { return {field("axes", &Axes::axes)}; }
  uint64_t reduced(int rank) const {
    return axes == 0 ? (uint64_t{1} << rank) - 1 : static_cast<uint64_t>(axes);
  }
  Status check(int rank) const;
};

// All axes but the last one are reduced.
struct AllButLast {
  int64_t axis = 0;

  static std::vector<AttrField> fields() { return {field("axis", &AllButLast::axis)}; }
  uint64_t reduced(int rank) const { return rank == 0 ? 0 : (uint64_t{1} << (rank - 1)) - 1; }
  Status check(int rank) const;
};

struct PowerAxes : Axes {
  double power = 2;

  static std::vector<AttrField> fields() {
    return {field("axes", &PowerAxes::axes), field("power", &PowerAxes::power)};
  }
};

struct CorrectionAxes : Axes {
  double correction = 1;

  static std::vector<AttrField> fields() {
    return {field("axes", &CorrectionAxes::axes), field("correction", &CorrectionAxes::correction)};
  }
  NPU_INLINE double divisor(double n) const { return n > correction ? n - correction : 0; }
};

}  // namespace npu::reduce
