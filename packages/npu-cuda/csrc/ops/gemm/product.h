// Products of matrices on the host, by the loops of host_block.h. B is packed in panels of a tile's width, so that a
// panel is read from start to end: [n / width, k, width], 0 beyond the last column; where there are few rows of A, its
// rows are read where they are. So is A, if the numbers of its rows, or of its columns, are in order and it is near
// enough; else it is copied. A part of D, some rows of a panel, stays in the first caches until it is finished. Which
// tile computes an element does not depend on the number of threads.
#pragma once

#include "ops/gemm/gemm.h"
#include "ops/gemm/host_block.h"
#include "ops/pointwise/host_rows.h"
#include "ops/pointwise/pointwise.h"

namespace npu::gemm {

// Sums that are finished, as numbers.
struct Part {
  int64_t item, row, column;  // in D
  int64_t rows, columns;
  void* sums;
  int64_t stride;
};

// Makes a part of D of sums.
struct Finish {
  void (*run)(const void* context, const Problem& problem, const Part& part) = nullptr;  // null: D is the sums
  const void* context = nullptr;
  const fusion::RegisterSteps* in_registers = nullptr;  // or this; of a product that takes them
};

int64_t bytes_of(Element element);

void write_part(const Problem& problem, const Part& part);
// Packs rows of B, of some columns, into a panel.
void pack(const Operand& b, int64_t offset, int64_t depth, int64_t columns, int64_t width, void* panel);

class Product {
 public:
  static constexpr int64_t kMostRows = 144;  // of a part: a multiple of the rows of a tile, as those of every part are
  static constexpr int64_t kMostWidth = 64;
  static constexpr int64_t kMostNumbers = kMostRows * kMostWidth;  // of a part

  // `width`: of panels that problem.b has already, one after the other; 0 where they are to be made of its rows.
  explicit Product(const Problem& problem, int64_t width = 0);

  // Returns the same product of other matrices.
  Product over(void* a, void* b, void* d) const;

  // Whether D can be written by tiles, after steps in their registers.
  bool takes_steps() const { return is_packed_ && is_d_direct_ && !has_streams_ && problem_.b.element == Element::Float32; }
  // Returns the distance of two rows of the sums of a part.
  int64_t stride() const { return width_; }
  uint64_t workspace_bytes() const;
  // `bias`: a row that the sums start at; its data may be null.
  void run(void* workspace, const Operand& bias, const Finish& finish) const;

 private:
  struct Stage;

  void run_few(void* workspace, const Operand& bias, const Finish& finish) const;
  void run_streams(Stage stage) const;
  void compute_streams(const Stage& stage, int64_t panel, int64_t streams, int64_t apart) const;
  void add_rows(const Block& block) const;
  void compute(const Stage& stage, int64_t task) const;
  void finish_part(const Finish& finish, const Part& part) const;
  const void* start_of(const Operand& bias, int64_t item, int64_t column, int64_t columns, int64_t padded,
                       void* buffer) const;
  // Rows of A from one on; `numbers`: where the first row of all is.
  void copy_rows(int64_t item, int64_t row, int64_t rows, void* numbers) const;
  uint64_t bytes_of_rows() const { return is_a_direct_ ? 0 : uint64_t(problem_.m * copied_stride_ * number_bytes_); }

  Problem problem_;
  bool is_packed_;
  const BlockLoops& loops_;
  int64_t number_bytes_, element_bytes_;
  int64_t copied_stride_;  // of rows of A that are copied, in numbers
  bool is_a_direct_, is_b_direct_, is_d_direct_, is_few_, is_large_;
  bool has_streams_;  // panels are few rows of A times several of them at a time
  bool are_dots_;  // the few rows are multiplied by columns of B, whose elements are neighbours
  int64_t width_, panels_;  // of parts, in columns, and how many there are
  int64_t stage_items_, stage_panels_;
};

}  // namespace npu::gemm
