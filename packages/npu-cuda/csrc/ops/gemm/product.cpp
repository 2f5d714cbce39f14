#include "ops/gemm/product.h"

#include <algorithm>

#include "ops/copy/copy.h"
#include "ops/threads.h"

namespace npu::gemm {
namespace {

constexpr int64_t kDepth = 256;     // of a panel that stays in the second cache, with the rows of a part
// Rows of A for which to pack B takes longer than to multiply it where it is: fewer where columns of B are short.
constexpr int64_t kFewRows = 16;
int64_t few_rows(int64_t depth) { return std::clamp<int64_t>(depth / 16, 1, kFewRows); }
constexpr int64_t kFewSums = 1024;   // that are made of them at a time
constexpr int64_t kStreamedRows = 2, kMostStreams = 4;  // of A, and panels that are read at the same time for them
constexpr int64_t kStreams = 16;     // rows of B that are read at the same time, where they are not packed
// Of panels that are made at a time: at most, and for each thread, whose second cache they stay in.
constexpr int64_t kStageBytes = 4 << 20, kThreadBytes = 512 << 10;
constexpr int64_t kCopiedRows = 64;  // of A, at a time
// Rows that are a multiple of so many numbers apart would be in few sets of the first cache.
constexpr int64_t kFarRows = 512, kBetweenRows = 16;
// A and B that are read where they are: rows of A from its columns, for few panels; B for few rows of A.
constexpr int64_t kNearBytes = 4096, kFewPanels = 16, kFewTiles = 16;
// Below it threads take longer to wake than to work.
constexpr double kManyOperations = 1e6;
constexpr int64_t kManyBytes = 64 << 10;

int64_t parts_of(int64_t count, int64_t size) { return (count + size - 1) / size; }
uint64_t aligned(uint64_t bytes) { return (bytes + 63) / 64 * 64; }
void* at(const void* data, int64_t bytes) { return const_cast<char*>(static_cast<const char*>(data)) + bytes; }

TensorDesc matrix(const void* data, DType dtype, int64_t rows, int64_t columns, int64_t row, int64_t column) {
  TensorDesc desc{};
  desc.data = const_cast<void*>(data);
  desc.dtype = dtype;
  desc.rank = 2;
  desc.numel = rows * columns;
  desc.shape[0] = rows;
  desc.shape[1] = columns;
  desc.strides[0] = row;
  desc.strides[1] = column;
  return desc;
}

// Any that has so many bytes: elements are moved as they are.
DType dtype_of(int64_t bytes) { return {2, static_cast<uint8_t>(bytes * 8), 1}; }

// rows x columns of a matrix, to rows of numbers that are `stride` apart.
void copy_numbers(const Operand& from, int64_t offset, int64_t rows, int64_t columns, void* numbers, int64_t stride) {
  const int64_t bytes = bytes_of(from.element), number_bytes = from.element == Element::Float64 ? 8 : 4;
  const auto read = pointwise::reader(from.element, pointwise::class_of(from.element));
  const void* source = at(from.data, offset * bytes);
  if (bytes == number_bytes) {
    (void)copy_on_host(matrix(source, dtype_of(bytes), rows, columns, from.row, from.column),
                       matrix(numbers, dtype_of(bytes), rows, columns, stride, 1));
  } else if (from.column == 1 || from.row != 1) {
    for (int64_t row = 0; row < rows; ++row) {
      read(at(source, row * from.row * bytes), from.column, at(numbers, row * stride * number_bytes), columns);
    }
  } else {  // 16-bit floats that are transposed first
    constexpr int64_t kSide = 64;
    uint16_t square[kSide * kSide];
    for (int64_t left = 0; left < columns; left += kSide) {
      const int64_t count = std::min(kSide, columns - left);
      for (int64_t top = 0; top < rows; top += kSide) {
        const int64_t height = std::min(kSide, rows - top);
        (void)copy_on_host(matrix(at(source, (top * from.row + left * from.column) * bytes), dtype_of(2), height, count,
                                  from.row, from.column),
                           matrix(square, dtype_of(2), height, count, kSide, 1));
        for (int64_t row = 0; row < height; ++row) {
          read(square + row * kSide, 1, at(numbers, ((top + row) * stride + left) * number_bytes), count);
        }
      }
    }
  }
}

}  // namespace

int64_t bytes_of(Element element) {
  return element == Element::Float64 ? 8 : element == Element::Float32 ? 4 : 2;
}

void write_part(const Problem& problem, const Part& part) {
  const Operand& d = problem.d;
  const auto write = pointwise::writer(d.element, pointwise::class_of(problem.b.element));
  const int64_t bytes = bytes_of(d.element), number_bytes = problem.b.element == Element::Float64 ? 8 : 4;
  const int64_t start = problem.offset(d, part.item) + part.row * d.row + part.column * d.column;
  for (int64_t row = 0; row < part.rows; ++row) {
    write(at(part.sums, row * part.stride * number_bytes), at(d.data, (start + row * d.row) * bytes), d.column,
          part.columns);
  }
}

void pack(const Operand& b, int64_t offset, int64_t depth, int64_t columns, int64_t width, void* panel) {
  const int64_t bytes = bytes_of(b.element);
  if (depth == 0) return;
  (void)copy_on_host(matrix(at(b.data, offset * bytes), dtype_of(bytes), depth, columns, b.row, b.column),
                     matrix(panel, dtype_of(bytes), depth, columns, width, 1));
  for (int64_t k = 0; columns < width && k < depth; ++k) {
    std::memset(at(panel, (k * width + columns) * bytes), 0, size_t((width - columns) * bytes));
  }
}

Product::Product(const Problem& problem, int64_t width)
    : problem_(problem), is_packed_(width > 0), loops_(block_loops(problem.b.element)),
      number_bytes_(problem.b.element == Element::Float64 ? 8 : 4), element_bytes_(bytes_of(problem.b.element)),
      copied_stride_(problem.k % kFarRows == 0 ? problem.k + kBetweenRows : problem.k) {
  const auto is_direct = [&](const Operand& operand) {
    return bytes_of(operand.element) == number_bytes_ && operand.column == 1;
  };
  const Operand& b = problem.b;
  is_a_direct_ = is_direct(problem.a);
  is_d_direct_ = is_direct(problem.d);
  is_few_ = problem.m <= few_rows(problem.k) && !is_packed_ && (b.column == 1 || b.row == 1);
  are_dots_ = b.row == 1 && (b.column != 1 || problem.n == 1);
  const double operations = 2.0 * double(problem.m) * double(problem.n) * double(problem.k) * double(problem.items);
  is_large_ = operations > kManyOperations || problem.n * problem.k * problem.items * element_bytes_ > kManyBytes;
  // Narrow matrices have narrow panels, so that little is multiplied by 0.
  width_ = is_packed_ ? width : loops_.width;
  if (is_few_) width_ = are_dots_ ? kMostWidth : kFewSums / std::max<int64_t>(1, problem.m) / kMostWidth * kMostWidth;
  while (!is_packed_ && !is_few_ && width_ > loops_.vector && width_ >= 2 * problem.n) width_ /= 2;
  panels_ = parts_of(problem.n, width_);
  const Operand& a = problem.a;
  const bool is_near = a.row == 1 && a.column * number_bytes_ <= kNearBytes && bytes_of(a.element) == number_bytes_;
  if (!is_few_ && is_near && panels_ <= kFewPanels) is_a_direct_ = true;
  is_b_direct_ = !is_packed_ && !is_few_ && is_direct(b) && b.row * number_bytes_ <= kNearBytes &&
                 problem.n % loops_.vector == 0 && problem.m <= kFewTiles * loops_.rows;
  has_streams_ = is_packed_ && problem.m <= kStreamedRows && problem.items == 1 && width_ == loops_.width &&
                 (!is_a_direct_ || a.column == 1);
  const int64_t panel_bytes = std::max<int64_t>(1, problem.k * width_ * element_bytes_);
  const int64_t most = is_packed_ ? panels_ * problem.items : std::max<int64_t>(1, kStageBytes / panel_bytes);
  stage_panels_ = std::min(panels_, most);
  stage_items_ = std::clamp<int64_t>(most / std::max<int64_t>(1, panels_), 1, std::max<int64_t>(1, problem.items));
  if (!is_a_direct_ && !is_few_) {
    const auto rows_bytes = std::max<int64_t>(1, int64_t(bytes_of_rows()));
    stage_items_ = std::clamp<int64_t>(kStageBytes / rows_bytes, 1, stage_items_);
  }
}

Product Product::over(void* a, void* b, void* d) const {
  Product other = *this;
  other.problem_.a.data = a;
  other.problem_.b.data = b;
  other.problem_.d.data = d;
  return other;
}

uint64_t Product::workspace_bytes() const {
  if (is_few_) return uint64_t(problem_.items) * bytes_of_rows();
  const uint64_t rows = aligned(uint64_t(stage_items_) * bytes_of_rows());
  if (is_packed_ || is_b_direct_) return rows;
  return rows + uint64_t(stage_items_ * stage_panels_ * problem_.k * width_ * element_bytes_);
}

// What is computed at a time: some panels of some matrices.
struct Product::Stage {
  int64_t item, items, panel, panels;
  int64_t rows_of_part, row_parts;
  char* numbers;       // of A, where they are copied
  const char* packed;  // of B, where it is packed here
  const Operand* bias;
  const Finish* finish;
};

void Product::run(void* workspace, const Operand& bias, const Finish& finish) const {
  if (is_few_) return run_few(workspace, bias, finish);
  Stage stage{};
  stage.numbers = static_cast<char*>(workspace);
  char* const panels = stage.numbers + aligned(uint64_t(stage_items_) * bytes_of_rows());
  stage.packed = panels;
  stage.bias = &bias;
  stage.finish = &finish;
  const auto each = [&](int64_t tasks, const auto& f) {
    if (is_large_) return parallel_tasks(tasks, f);
    for (int64_t task = 0; task < tasks; ++task) f(task);
  };
  const int64_t panel_bytes = std::max<int64_t>(1, problem_.k * width_ * element_bytes_);
  const int64_t in_caches = std::max<int64_t>(1, kThreadBytes * thread_count() / panel_bytes);
  const int64_t stage_panels = is_packed_ ? stage_panels_ : std::min(stage_panels_, in_caches);
  for (stage.item = 0; stage.item < problem_.items; stage.item += stage_items_) {
    stage.items = std::min(stage_items_, problem_.items - stage.item);
    if (!is_a_direct_) {
      const int64_t parts = parts_of(problem_.m, kCopiedRows);
      each(stage.items * parts, [&](int64_t task) {
        const int64_t i = task / parts, row = task % parts * kCopiedRows;
        copy_rows(stage.item + i, row, std::min(kCopiedRows, problem_.m - row), stage.numbers + uint64_t(i) * bytes_of_rows());
      });
    }
    if (has_streams_) return run_streams(stage);
    for (stage.panel = 0; stage.panel < panels_; stage.panel += stage_panels) {
      stage.panels = std::min(stage_panels, panels_ - stage.panel);
      if (!is_packed_ && !is_b_direct_) {
        each(stage.items * stage.panels, [&](int64_t task) {
          const int64_t item = stage.item + task / stage.panels, column = (stage.panel + task % stage.panels) * width_;
          pack(problem_.b, problem_.offset(problem_.b, item) + column * problem_.b.column, problem_.k,
               std::min(width_, problem_.n - column), width_, panels + task * problem_.k * width_ * element_bytes_);
        });
      }
      const int64_t columns_parts = stage.items * stage.panels;
      const int64_t wanted = is_large_ ? parts_of(2 * thread_count(), columns_parts) : 1;
      const int64_t most_parts = parts_of(problem_.m, 4 * loops_.rows);
      const int64_t row_parts = std::max(parts_of(problem_.m, kMostRows), std::min(wanted, most_parts));
      stage.rows_of_part = parts_of(parts_of(problem_.m, row_parts), loops_.rows) * loops_.rows;
      stage.row_parts = parts_of(problem_.m, stage.rows_of_part);
      each(columns_parts * stage.row_parts, [&](int64_t task) { compute(stage, task); });
    }
  }
}

// Some panels at a time, each far from the next; what remains one by one. Sums are the same however many are read at a
// time, but not those of panels one by one, so that which ones remain depends on the shape alone.
void Product::run_streams(Stage stage) const {
  const int64_t most = problem_.m == 1 ? kMostStreams : 2, streamed = problem_.n / width_ / most * most;
  const int64_t threads = is_large_ ? thread_count() : 1;
  const int64_t streams = threads == 1 || streamed >= 2 * most * threads ? most : 2;
  const int64_t apart = streamed / streams, tasks = std::min(apart, 4 * threads);
  stage.panel = streamed;
  stage.panels = panels_ - stage.panel;
  stage.rows_of_part = problem_.m;
  stage.row_parts = 1;
  const auto run = [&](int64_t task) {
    if (task >= tasks) return compute(stage, task - tasks);
    for (int64_t panel = task * apart / tasks; panel < (task + 1) * apart / tasks; ++panel) {
      compute_streams(stage, panel, streams, apart);
    }
  };
  if (threads > 1) return parallel_tasks(tasks + stage.panels, run);
  for (int64_t task = 0; task < tasks + stage.panels; ++task) run(task);
}

void Product::compute_streams(const Stage& stage, int64_t panel, int64_t streams, int64_t apart) const {
  alignas(64) double sums[kMostStreams * kMostWidth], bias[kMostStreams * kMostWidth];
  const Operand &a = problem_.a, &d = problem_.d, &start = *stage.bias;
  const bool is_direct = is_d_direct_ && !stage.finish->run;
  const int64_t column = panel * width_, columns_apart = apart * width_;
  Streams s{};
  s.rows = is_a_direct_ ? at(a.data, problem_.offset(a, 0) * number_bytes_) : stage.numbers;
  s.row_stride = is_a_direct_ ? a.row : copied_stride_;
  s.panel = at(problem_.b.data, (problem_.offset(problem_.b, 0) + column * problem_.k) * element_bytes_);
  s.panel_apart = columns_apart * problem_.k;
  s.start = start_of(start, 0, column, width_, width_, bias);
  s.start_apart = s.start == bias ? width_ : columns_apart;
  for (int64_t i = 1; i < streams && s.start == bias; ++i) {
    (void)start_of(start, 0, column + i * columns_apart, width_, width_, at(bias, i * width_ * number_bytes_));
  }
  s.out = is_direct ? at(d.data, (problem_.offset(d, 0) + column) * number_bytes_) : sums;
  s.out_stride = is_direct ? d.row : width_;
  s.out_apart = is_direct ? columns_apart : problem_.m * width_;
  s.num_rows = problem_.m;
  s.depth = problem_.k;
  s.num_panels = streams;
  loops_.multiply_streams(s);
  for (int64_t i = 0; i < streams && !is_direct; ++i) {
    void* const of_panel = at(sums, i * s.out_apart * number_bytes_);
    finish_part(*stage.finish, {0, 0, column + i * columns_apart, problem_.m, width_, of_panel, width_});
  }
}

void Product::compute(const Stage& stage, int64_t task) const {
  alignas(64) char sums[kMostNumbers * sizeof(double)];
  alignas(64) double bias[kMostWidth];
  const int64_t panel = task % stage.panels, row_part = task / stage.panels % stage.row_parts;
  const int64_t item = task / stage.panels / stage.row_parts, column = (stage.panel + panel) * width_;
  Part part{stage.item + item, row_part * stage.rows_of_part, column, 0, std::min(width_, problem_.n - column), sums,
            width_};
  part.rows = std::min(stage.rows_of_part, problem_.m - part.row);
  const bool is_read_once = problem_.m == 1 || (problem_.m <= loops_.rows && width_ <= loops_.width);
  const int64_t depth = is_read_once ? std::max<int64_t>(1, problem_.k) : kDepth;
  const Operand &a = problem_.a, &d = problem_.d;
  // Sums between depths are read as whole vectors, which D may not have.
  const fusion::RegisterSteps* const steps = stage.finish->in_registers;
  const bool is_direct = is_d_direct_ && !stage.finish->run && !steps &&
                         (part.columns % loops_.vector == 0 || problem_.k <= depth);
  Block block{};
  block.row_stride = is_a_direct_ ? a.row : copied_stride_;
  block.row_step = is_a_direct_ ? a.column : 1;
  const void* rows = is_a_direct_ ? at(a.data, problem_.offset(a, part.item) * number_bytes_)
                                  : stage.numbers + uint64_t(item) * bytes_of_rows();
  rows = at(rows, part.row * block.row_stride * number_bytes_);
  const void* elements = stage.packed + (item * stage.panels + panel) * problem_.k * width_ * element_bytes_;
  if (is_packed_) {
    elements = at(problem_.b.data, (problem_.offset(problem_.b, part.item) + column * problem_.k) * element_bytes_);
  } else if (is_b_direct_) {
    elements = at(problem_.b.data, (problem_.offset(problem_.b, part.item) + column) * element_bytes_);
  }
  block.panel_stride = is_b_direct_ ? problem_.b.row : width_;
  block.num_rows = part.rows;
  block.is_streamed = is_packed_ && part.rows == problem_.m;
  block.columns = part.columns;
  block.out_stride = is_direct ? d.row : width_;
  const int64_t first = problem_.offset(d, part.item) + part.row * d.row + column;
  block.out = is_direct ? at(d.data, first * number_bytes_) : sums;
  block.start = start_of(*stage.bias, part.item, column, part.columns, width_, bias);
  for (int64_t k = 0; k == 0 || k < problem_.k; k += depth) {
    block.rows = at(rows, k * block.row_step * number_bytes_);
    block.panel = at(elements, k * block.panel_stride * element_bytes_);
    block.depth = std::min(depth, problem_.k - k);
    if (is_packed_) block.next = at(block.panel, block.depth * width_ * element_bytes_);
    if (steps && k + depth >= problem_.k) {
      block.steps = steps;
      block.out = at(d.data, first * number_bytes_);
      block.out_stride = d.row;
    }
    loops_.multiply(block);
    block.start = block.out;
    block.start_stride = block.out_stride;
  }
  if (!is_direct && !steps) finish_part(*stage.finish, part);
}

void Product::finish_part(const Finish& finish, const Part& part) const {
  if (finish.run) finish.run(finish.context, problem_, part);
  else write_part(problem_, part);
}

// The part of a row that the sums of some columns start at, as whole vectors of numbers; null where there is none.
const void* Product::start_of(const Operand& bias, int64_t item, int64_t column, int64_t columns, int64_t padded,
                              void* buffer) const {
  if (!bias.data) return nullptr;
  const int64_t offset = problem_.offset(bias, item) + column * bias.column;
  const void* start = at(bias.data, offset * bytes_of(bias.element));
  if (bias.column == 1 && columns == padded && bytes_of(bias.element) == number_bytes_) return start;
  std::memset(buffer, 0, size_t(padded * number_bytes_));
  pointwise::reader(bias.element, pointwise::class_of(problem_.b.element))(start, bias.column, buffer, columns);
  return buffer;
}

void Product::copy_rows(int64_t item, int64_t row, int64_t rows, void* numbers) const {
  copy_numbers(problem_.a, problem_.offset(problem_.a, item) + row * problem_.a.row, rows, problem_.k,
               at(numbers, row * copied_stride_ * number_bytes_), copied_stride_);
}

// A few rows times a matrix that is read once, where it is.
void Product::run_few(void* workspace, const Operand& bias, const Finish& finish) const {
  const Operand &a = problem_.a, &b = problem_.b;
  for (int64_t item = 0; !is_a_direct_ && item < problem_.items; ++item) {
    copy_rows(item, 0, problem_.m, at(workspace, item * int64_t(bytes_of_rows())));
  }
  const auto compute_part = [&](int64_t task) {
    alignas(64) double sums[kFewSums], first[kFewSums];
    const int64_t item = task / panels_, column = task % panels_ * width_;
    const Part part{item, 0, column, problem_.m, std::min(width_, problem_.n - column), sums, width_};
    const void* rows = is_a_direct_ ? at(a.data, problem_.offset(a, item) * number_bytes_)
                                    : at(workspace, item * int64_t(bytes_of_rows()));
    const int64_t row_stride = is_a_direct_ ? a.row : copied_stride_;
    const void* matrix = at(b.data, (problem_.offset(b, item) + column * b.column) * element_bytes_);
    if (are_dots_) {
      loops_.dots({rows, row_stride, matrix, b.column, sums, width_, part.rows, part.columns, problem_.k});
      const void* start = start_of(bias, item, column, part.columns, part.columns, first);
      for (int64_t row = 0; start && row < part.rows; ++row) {
        loops_.combine({at(sums, row * width_ * number_bytes_), start, 1, 1, part.columns});
      }
    } else {
      const int64_t padded = parts_of(part.columns, loops_.vector) * loops_.vector;
      const void* start = start_of(bias, item, column, part.columns, padded, first);
      add_rows({rows, row_stride, matrix, b.row, start, 0, sums, width_, part.rows, part.columns, problem_.k});
    }
    finish_part(finish, part);
  };
  if (is_large_) return parallel_tasks(problem_.items * panels_, compute_part);
  for (int64_t task = 0; task < problem_.items * panels_; ++task) compute_part(task);
}

// Few rows of B at a time, each in order. What is less than a vector is packed, so that nothing is read beyond a row.
void Product::add_rows(const Block& whole) const {
  alignas(64) char panel[kStreams * kMostWidth * sizeof(float)];
  for (int64_t k = 0; k == 0 || k < whole.depth; k += kStreams) {
    for (int64_t column = 0; column < whole.columns; column += loops_.width) {
      Block block = whole;
      block.depth = std::min(kStreams, whole.depth - k);
      block.columns = std::min(loops_.width, whole.columns - column);
      block.rows = at(whole.rows, k * number_bytes_);
      block.panel = at(whole.panel, (k * whole.panel_stride + column) * element_bytes_);
      block.out = at(whole.out, column * number_bytes_);
      if (k > 0) {
        block.start = block.out;
        block.start_stride = block.out_stride;
      } else if (whole.start) {
        block.start = at(whole.start, column * number_bytes_);
      }
      const int64_t whole_vectors = block.columns / loops_.vector * loops_.vector;
      if (block.columns > whole_vectors) {
        Operand rest{const_cast<void*>(block.panel), problem_.b.element, whole.panel_stride, 1, {}};
        pack(rest, 0, block.depth, block.columns, loops_.width, panel);
        block.panel = panel;
        block.panel_stride = loops_.width;
      }
      block.columns = parts_of(block.columns, loops_.vector) * loops_.vector;  // sums have room for them
      loops_.multiply(block);
    }
  }
}

}  // namespace npu::gemm
