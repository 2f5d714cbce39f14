#include "ops/reduce/cumsum.h"
#include "ops/reduce/host_elements.h"
#include "ops/threads.h"

namespace npu::reduce {
namespace {

constexpr int64_t kColumns = 256;  // that are summed side by side

// Signed integers wrap around.
template <class Lane>
[[gnu::always_inline]] inline Lane add(Lane a, Lane b) {
  using Sum = std::conditional_t<std::is_same_v<Lane, int64_t>, uint64_t, Lane>;
  return static_cast<Lane>(static_cast<Sum>(a) + static_cast<Sum>(b));
}

// In place; four at a time, so that one addition of four waits for the one before.
template <class Lane>
Lane sum_row(Lane* x, int64_t n, Lane sum) {
  int64_t i = 0;
  for (; i + 4 <= n; i += 4) {
    const Lane two = add(x[i], x[i + 1]), three = add(two, x[i + 2]), four = add(three, x[i + 3]);
    x[i] = add(sum, x[i]);
    x[i + 1] = add(sum, two);
    x[i + 2] = add(sum, three);
    x[i + 3] = sum = add(sum, four);
  }
  for (; i < n; ++i) x[i] = sum = add(sum, x[i]);
  return sum;
}

template <class Lane>
struct Job {
  Geometry geometry;    // of one row of each
  int64_t x_stride, y_stride;  // along the axis
  Elements<Lane> x;
  char* y;
  int64_t y_bytes;
  pointwise::WriteRow write;

  void write_row(const Lane* numbers, int64_t offset, int64_t stride, int64_t n) const {
    write(numbers, y + offset * y_bytes, stride, n);
  }

  // Short rows one after the other in memory are read and written together.
  void rows(const Cursor& at, int64_t n) const {
    const Nest& kept = geometry.kept;
    const int64_t width = geometry.reduced.numel, x_row = kept.strides[kOfInput][0], y_row = kept.strides[kOfOutput][0];
    const bool is_dense = x_stride == 1 && y_stride == 1 && x_row == width && y_row == width;
    const int64_t most = is_dense ? std::max<int64_t>(1, kBlock / width) : 1;
    for (int64_t row = 0, count; row < n; row += count) {
      count = std::min(most, n - row);
      sum_rows(at.offset(kOfInput) + row * x_row, at.offset(kOfOutput) + row * y_row, count);
    }
  }

  void sum_rows(int64_t from, int64_t to, int64_t count) const {
    alignas(64) Lane block[kBlock];
    Lane sum = 0;
    for (int64_t i = 0, n; i < geometry.reduced.numel; i += n) {
      n = std::min(kBlock, geometry.reduced.numel - i);
      x.read_row(from + i * x_stride, x_stride, block, count * n);
      for (int64_t row = 0; row < count; ++row) sum = sum_row(block + row * n, n, count == 1 ? sum : Lane(0));
      write_row(block, to + i * y_stride, y_stride, count * n);
    }
  }

  void columns(const Cursor& at, int64_t n) const {
    alignas(64) Lane sums[kColumns] = {}, block[kColumns];
    const Nest& kept = geometry.kept;
    for (int64_t i = 0; i < geometry.reduced.numel; ++i) {
      x.read_row(at.offset(kOfInput) + i * x_stride, kept.strides[kOfInput][0], block, n);
      for (int64_t k = 0; k < n; ++k) sums[k] = add(sums[k], block[k]);
      write_row(sums, at.offset(kOfOutput) + i * y_stride, kept.strides[kOfOutput][0], n);
    }
  }
};

template <Class type>
Status launch_cumsum(const OpCall& call) {
  using Lane = pointwise::NumberOf<type>;
  const TensorDesc &x = call.inputs[0], &y = call.outputs[0];
  if (y.numel == 0) return {};
  const uint64_t axes = attrs_of<Cumsum>(call).axes(x.rank);
  const Geometry geometry = geometry_of(x, y, axes);
  const int64_t y_stride = geometry_of(y, y, axes).reduced.strides[0][0];
  const Job<Lane> job{geometry, geometry.reduced.strides[0][0], y_stride, {x, &geometry.reduced},
                      static_cast<char*>(y.data), item_bytes(y.dtype),
                      pointwise::writer(pointwise::element_of(y.dtype), type)};
  const int64_t least = std::max<int64_t>(16, least_results(geometry));
  parallel_items(geometry.kept.numel, least, [&](int64_t begin, int64_t end) {
    each_run(geometry.kept, begin, end, kColumns, [&](const Cursor& at, int64_t n) {
      geometry.has_columns() ? job.columns(at, n) : job.rows(at, n);
    });
  });
  return {};
}

template <Class type>
KernelPtr cumsum_kernel() {
  const std::string id = std::string("cumsum.") + pointwise::class_name(type) + ".host";
  return make_kernel({Cumsum::row.kind, id, DeviceType::Host, 5},
                     {supported_cumsum<type>, launch_cumsum<type>});
}

}  // namespace

std::vector<KernelPtr> cumsum_host_kernels() { return {cumsum_kernel<kFloat64>(), cumsum_kernel<kInt64>()}; }

}  // namespace npu::reduce
