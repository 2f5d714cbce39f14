// What the loops of the host over a reduced tensor have in common: its elements as numbers, and walks over
// results.
#pragma once

#include <algorithm>

#include "ops/pointwise/host_rows.h"
#include "ops/reduce/geometry.h"
#include "ops/reduce/reduce.h"

namespace npu::reduce {

inline constexpr int64_t kBlock = 2048;        // numbers that are read at a time
inline constexpr int64_t kLeastWork = 32768;   // elements that are worth a thread

template <class Lane>
inline constexpr Class kClassOf =
    std::is_same_v<Lane, float> ? kFloat32 : std::is_same_v<Lane, double> ? kFloat64 : kInt64;

// Results that are worth a thread.
inline int64_t least_results(const Geometry& geometry) {
  return std::max<int64_t>(1, kLeastWork / std::max<int64_t>(1, geometry.reduced.numel));
}

// The input of a call, as numbers.
template <class Lane>
class Elements {
 public:
  Elements(const TensorDesc& x, const Nest* reduced)
      : reduced_(reduced), x_(static_cast<const char*>(x.data)), bytes_(item_bytes(x.dtype)),
        read_(pointwise::reader(pointwise::element_of(x.dtype), kClassOf<Lane>)),
        is_stored_(x.dtype == stored()) {}

  // Elements are numbers.
  bool is_stored() const { return is_stored_; }
  bool has_direct_rows() const {
    constexpr int64_t least = 64;  // shorter rows are read into blocks
    return is_stored_ && reduced_->strides[0][0] == 1 && (reduced_->rank == 1 || reduced_->shape[0] >= least);
  }
  const Lane* numbers(int64_t offset) const { return reinterpret_cast<const Lane*>(x_) + offset; }
  void read_row(int64_t offset, int64_t stride, Lane* numbers, int64_t n) const {
    read_(x_ + offset * bytes_, stride, numbers, n);
  }
  // The next n elements of a result, which the cursor moves over.
  void read(int64_t offset, Cursor* at, Lane* block, int64_t n) const {
    for (int64_t done = 0, count; done < n; done += count) {
      count = std::min(n - done, at->left_in_row());
      read_row(offset + at->offset(0), reduced_->strides[0][0], block + done, count);
      at->advance(count);
    }
  }

 private:
  static DType stored() {
    return std::is_same_v<Lane, float> ? npu::kFloat32 : DType{std::is_same_v<Lane, double> ? 2 : 0, 64, 1};
  }

  const Nest* reduced_;
  const char* x_;
  int64_t bytes_;
  pointwise::ReadRow read_;
  bool is_stored_;
};

// Calls visit(cursor, n) for runs of at most `most` results along the kept axis that is innermost.
template <class Visit>
void each_run(const Nest& kept, int64_t begin, int64_t end, int64_t most, Visit visit) {
  Cursor at(&kept, begin);
  for (int64_t i = begin, n; i < end; i += n) {
    n = std::min({most, end - i, at.left_in_row()});
    visit(at, n);
    at.advance(n);
  }
}

// Writes runs of results.
struct Results {
  char* y;
  int64_t bytes, stride;
  pointwise::WriteRow write;

  Results(const TensorDesc& tensor, const Geometry& geometry, Class type)
      : y(static_cast<char*>(tensor.data)), bytes(item_bytes(tensor.dtype)),
        stride(geometry.kept.strides[kOfOutput][0]),
        write(pointwise::writer(pointwise::element_of(tensor.dtype), type)) {}
  void put(const void* numbers, const Cursor& at, int64_t n) const {
    write(numbers, y + at.offset(kOfOutput) * bytes, stride, n);
  }
};

}  // namespace npu::reduce
