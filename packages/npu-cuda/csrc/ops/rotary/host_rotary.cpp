// Rotary on the host. Compiled without contraction: a product and a sum are rounded one by one.
#include "ops/floats.h"
#include "ops/host_simd.h"
#include "ops/rotary/rotary.h"
#include "ops/threads.h"

namespace npu::rotary {
namespace {

constexpr int64_t kLeastItems = 1 << 14;  // of a thread

// Numbers that are computed with: double as it is, others as float.
inline double widened(double x) { return x; }
template <class T>
float widened(T x) {
  return to_float(x);
}
template <class T>
using Wide = decltype(widened(T{}));

template <class T>
[[gnu::always_inline]] inline T narrowed(Wide<T> x) {
  if constexpr (sizeof(T) == sizeof(x)) return x;
  else return from_float<T>(x);
}

template <class T>
[[gnu::always_inline]] inline Wide<T> product(T a, T b) {
  return widened(narrowed<T>(widened(a) * widened(b)));
}

// Strides of x, y, cos and sin along a row; all are 1 where they are known to be.
template <class T, bool kAreOne>
[[gnu::always_inline]] inline void turn_row(const Problem& p, const T* __restrict x, T* __restrict y,
                                            const T* __restrict cos, const T* __restrict sin) {
  const int64_t sx = kAreOne ? 1 : p.x.column, sy = kAreOne ? 1 : p.y.column;
  const int64_t sc = kAreOne ? 1 : p.cos.column, ss = kAreOne ? 1 : p.sin.column;
  const int64_t half = p.half;
  for (int64_t i = 0; i < half; ++i) {
    const T first = x[i * sx], second = x[(i + half) * sx];
    y[i * sy] = narrowed<T>(product(first, cos[i * sc]) - product(second, sin[i * ss]));
    y[(i + half) * sy] = narrowed<T>(product(second, cos[(i + half) * sc]) + product(first, sin[(i + half) * ss]));
  }
  for (int64_t i = p.width; i < p.size; ++i) y[i * sy] = x[i * sx];
}

template <class T, bool kAreOne>
struct Rows {
  [[gnu::always_inline]] static inline void run(const Problem* problem, int64_t begin, int64_t end) {
    const Problem& p = *problem;
    for (int64_t row = begin; row < end; ++row) {
      int64_t rest = row, x = 0, y = 0, cos = 0, sin = 0;
      for (int axis = p.rank - 1; axis >= 0 && rest > 0; --axis) {
        const int64_t next = rest / p.shape[axis], at = rest - next * p.shape[axis];
        x += at * p.x.strides[axis];
        y += at * p.y.strides[axis];
        cos += at * p.cos.strides[axis];
        sin += at * p.sin.strides[axis];
        rest = next;
      }
      turn_row<T, kAreOne>(p, reinterpret_cast<const T*>(p.x.data) + x, reinterpret_cast<T*>(p.y.data) + y,
                           reinterpret_cast<const T*>(p.cos.data) + cos, reinterpret_cast<const T*>(p.sin.data) + sin);
    }
  }
};

template <class T>
Status launch(const OpCall& call) {
  for (int item = 0; item < call.num_outputs; ++item) {
    const Problem problem = problem_of(call, item);
    const bool are_one = problem.x.column == 1 && problem.y.column == 1 && problem.cos.column == 1 && problem.sin.column == 1;
    const int64_t least = std::max<int64_t>(1, kLeastItems / std::max<int64_t>(1, problem.size));
    parallel_items(problem.rows, least, [&](int64_t begin, int64_t end) {
      if (are_one) run_simd<Rows<T, true>>(&problem, begin, end);
      else Rows<T, false>::run(&problem, begin, end);
    });
  }
  return {};
}

template <class T>
constexpr DType dtype_of() {
  if constexpr (sizeof(T) == 8) return DType{2, 64, 1};
  else return kDTypeOf<T>;
}

template <class T>
Status supported(const OpCall& call) {
  return check(call, dtype_of<T>());
}

template <class T>
KernelPtr kernel(const char* id) {
  return make_kernel({kRotary, id, DeviceType::Host}, {supported<T>, launch<T>, cost}, dtype_of<T>());
}

}  // namespace

std::vector<KernelPtr> host_kernels() {
  return {kernel<float>("rotary.f32.host"), kernel<BFloat16>("rotary.bf16.host"), kernel<Half>("rotary.f16.host"),
          kernel<double>("rotary.f64.host")};
}

}  // namespace npu::rotary
