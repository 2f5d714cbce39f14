#include <atomic>
#include <thread>

#include "ops/gemm/host_block.h"
#include "ops/pointwise/host_rows.h"
#include "ops/pointwise/pointwise.h"
#include "ops/recurrent/host_cells.h"
#include "ops/threads.h"

namespace npu::recurrent {
namespace {

constexpr int64_t kMostRows = 96;  // of a part of a product: a multiple of the rows of a tile
// Rows that are a multiple of so many numbers apart would be in few sets of the first cache.
constexpr int64_t kFarRows = 512, kBetweenRows = 16;
// Of a step; below it threads take longer to wait for one another than to work.
constexpr double kManyOperations = 1e6;
constexpr int kSpins = 4096;

void* at(const void* data, int64_t bytes) { return const_cast<char*>(static_cast<const char*>(data)) + bytes; }

// Threads wait here until all have come.
class Barrier {
 public:
  explicit Barrier(int parts) : parts_(parts) {}

  void wait() {
    const int64_t round = round_.load(std::memory_order_relaxed);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == parts_) {
      arrived_.store(0, std::memory_order_relaxed);
      round_.store(round + 1, std::memory_order_release);
      return;
    }
    for (int spin = 0; round_.load(std::memory_order_acquire) == round; ++spin) {
      if (spin > kSpins) std::this_thread::yield();
    }
  }

 private:
  const int parts_;
  std::atomic<int> arrived_{0};
  std::atomic<int64_t> round_{0};
};

// The steps of a layer. States are rows of f32 in the workspace: h before a step, h after it, and c.
class Layer {
 public:
  explicit Layer(const Problem& problem)
      : problem_(problem), multiply_(gemm::block_loops(problem.element).multiply), compute_(cell_loop(problem.cell)),
        read_(pointwise::reader(problem.element, pointwise::class_of(problem.element))),
        write_(pointwise::writer(problem.element, pointwise::class_of(problem.element))),
        bytes_(item_bytes(problem.y->dtype)), row_(problem.panels * problem.units) {
    if (row_ % kFarRows == 0) row_ += kBetweenRows;
  }

  uint64_t workspace_bytes() const {
    return uint64_t((problem_.c0 ? 3 : 2) * problem_.rows * row_) * sizeof(float);
  }

  void run(void* workspace) {
    const int64_t numbers = problem_.rows * row_;
    for (int i = 0; i < 2; ++i) h_[i] = static_cast<float*>(workspace) + i * numbers;
    if (problem_.c0) c_ = h_[1] + numbers;
    const double operations = 2.0 * double(problem_.rows * problem_.n) * double(problem_.gates * problem_.n);
    const int parts = operations < kManyOperations ? 1 : int(std::min<int64_t>(thread_count(), problem_.panels));
    Barrier barrier(parts);
    const auto work = [&](int part) {
      run_panels(problem_.panels * part / parts, problem_.panels * (part + 1) / parts, &barrier);
    };
    if (parts > 1 && run_parts(parts, work)) return;
    Barrier alone(1);
    run_panels(0, problem_.panels, &alone);
  }

 private:
  void run_panels(int64_t first, int64_t last, Barrier* barrier) {
    const int64_t column = first * problem_.units, columns = std::min(last * problem_.units, problem_.n) - column;
    read_state(*problem_.h0, h_[0], column, columns);
    if (c_) read_state(*problem_.c0, c_, column, columns);
    for (int64_t step = 0; step < problem_.steps; ++step) {
      barrier->wait();
      const int64_t time = problem_.is_reversed ? problem_.steps - 1 - step : step;
      for (int64_t panel = first; panel < last; ++panel) {
        for (int64_t row = 0; row < problem_.rows; row += kMostRows) {
          compute_part(time, panel, row, std::min(kMostRows, problem_.rows - row), h_[step % 2], h_[(step + 1) % 2]);
        }
      }
    }
    write_state(h_[problem_.steps % 2], *problem_.hn, column, columns);
    if (c_) write_state(c_, *problem_.cn, column, columns);
  }

  void compute_part(int64_t time, int64_t panel, int64_t row, int64_t rows, const float* h, float* next) const {
    alignas(64) float sums[kMostRows * kMostWidth], x[kMostRows * kMostWidth];
    alignas(64) float bias[kMostWidth];
    const int64_t width = problem_.width(), column = panel * problem_.units;
    const int64_t columns = std::min(problem_.units, problem_.n - column), state = row * row_ + column;
    gemm::Block block{};
    block.rows = h + row * row_;
    block.row_stride = row_;
    block.panel = at(problem_.weights, panel * problem_.n * width * bytes_);
    block.panel_stride = block.out_stride = width;
    block.out = sums;
    block.num_rows = rows;
    block.columns = width;
    block.depth = problem_.n;
    block.is_streamed = rows == problem_.rows;
    if (problem_.bias) {
      read_(at(problem_.bias, panel * width * bytes_), 1, bias, width);
      block.start = bias;
    }
    multiply_(block);
    CellRows cells{sums, width, x, width, problem_.units, h + state, next + state, c_ ? c_ + state : nullptr, row_, rows,
                   problem_.units};
    const TensorDesc &of_input = *problem_.x, &y = *problem_.y;
    const int64_t offset = time * of_input.strides[0] + row * of_input.strides[1] + column * of_input.strides[2];
    if (bytes_ == 4 && of_input.strides[2] == 1 && columns == problem_.units) {
      cells.x = static_cast<const float*>(of_input.data) + offset;
      cells.x_row = of_input.strides[1];
      cells.x_gate = problem_.n;
    } else {
      if (columns < problem_.units) std::memset(x, 0, size_t(rows * width) * sizeof(float));
      for (int64_t i = 0; i < rows * problem_.gates; ++i) {
        const int64_t from = i / problem_.gates * of_input.strides[1] + i % problem_.gates * problem_.n * of_input.strides[2];
        read_(at(of_input.data, (offset + from) * bytes_), of_input.strides[2], x + i * problem_.units, columns);
      }
    }
    compute_(cells);
    const int64_t to = time * y.strides[0] + row * y.strides[1] + column * y.strides[2];
    for (int64_t i = 0; i < rows; ++i) {
      write_(next + state + i * row_, at(y.data, (to + i * y.strides[1]) * bytes_), y.strides[2], columns);
    }
  }

  void read_state(const TensorDesc& from, float* state, int64_t column, int64_t columns) const {
    for (int64_t row = 0; row < problem_.rows; ++row) {
      float* const to = state + row * row_ + column;
      read_(at(from.data, (row * from.strides[0] + column * from.strides[1]) * bytes_), from.strides[1], to, columns);
    }
    const int64_t whole = problem_.panels * problem_.units;
    if (column + columns < problem_.n) return;
    for (int64_t row = 0; row < problem_.rows; ++row) {  // numbers beyond the last output are computed, too
      std::memset(state + row * row_ + problem_.n, 0, size_t(whole - problem_.n) * sizeof(float));
    }
  }

  void write_state(const float* state, const TensorDesc& to, int64_t column, int64_t columns) const {
    for (int64_t row = 0; row < problem_.rows; ++row) {
      const int64_t offset = row * to.strides[0] + column * to.strides[1];
      write_(state + row * row_ + column, at(to.data, offset * bytes_), to.strides[1], columns);
    }
  }

  const Problem& problem_;
  void (*multiply_)(const gemm::Block& block);
  CellLoop compute_;
  pointwise::ReadRow read_;
  pointwise::WriteRow write_;
  int64_t bytes_, row_;  // numbers from a row of states to the next
  float* h_[2] = {};
  float* c_ = nullptr;
};

uint64_t workspace_bytes(const OpCall& call) { return Layer(problem_of(call)).workspace_bytes(); }

Status launch(const OpCall& call) {
  if (call.outputs[1].numel == 0) return {};
  const Problem problem = problem_of(call);
  return Layer(problem).run(call.workspace), Status();
}

}  // namespace

std::vector<KernelPtr> host_kernels() {
  return {make_kernel({kRecurrent, "recurrent.host", DeviceType::Host}, {supported, launch, cost, workspace_bytes})};
}

}  // namespace npu::recurrent
