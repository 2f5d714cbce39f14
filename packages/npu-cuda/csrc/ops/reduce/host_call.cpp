#include "ops/reduce/host_call.h"

#include <algorithm>

#include "ops/reduce/parallel_items.h"
#include "ops/reduce/reduce.h"

namespace npu::reduce {
namespace {

constexpr int64_t kBlock = 2048;       // numbers that are reduced at a time
constexpr int64_t kLeastDirect = 64;   // shorter rows are read into blocks
constexpr int64_t kPart = 64 * kBlock; // elements of one result that another thread may reduce
constexpr int64_t kMostParts = 64;
constexpr int64_t kResults = 256;      // that are finished and written at a time
constexpr int64_t kBlockOfRows = 4096; // numbers of rows that are taken into columns at a time
constexpr int64_t kColumns = 512;
constexpr int64_t kLevels = 6;
constexpr int64_t kRowsOfLevel = 32;  // states that one of the next level takes
constexpr int64_t kLeastWork = 32768;  // elements that are worth a thread

// The states of blocks, joined as the digits of a binary counter are.
template <class Lane>
class Cascade {
 public:
  explicit Cascade(const Pass<Lane>* pass) : pass_(pass) {}

  void add(Lane state) {
    int level = 0;
    for (; count_ >> level & 1; ++level) state = merged(states_[level], state);
    states_[level] = state;
    ++count_;
  }
  Lane total() const {
    if (count_ == 0) return pass_->start;
    int level = __builtin_ctzll(count_);
    Lane state = states_[level];
    for (++level; count_ >> level != 0; ++level) {
      if (count_ >> level & 1) state = merged(states_[level], state);
    }
    return state;
  }

 private:
  Lane merged(Lane a, Lane b) const {
    pass_->merge(&a, &b, 1);
    return a;
  }

  const Pass<Lane>* pass_;
  uint64_t count_ = 0;
  Lane states_[48];
};

template <class Lane>
struct Job {
  const Geometry& geometry;
  const HostOp<Lane>& op;
  const void* attrs;
  const char* x;
  char* y;
  int64_t x_bytes, y_bytes;  // of an element
  pointwise::ReadRow read;
  pointwise::WriteRow write;
  bool is_stored;  // the elements of x are numbers

  const Lane* numbers(int64_t offset) const { return reinterpret_cast<const Lane*>(x) + offset; }
  const char* at(int64_t offset) const { return x + offset * x_bytes; }
  bool has_direct_rows() const {
    const Nest& reduced = geometry.reduced;
    return is_stored && reduced.strides[0][0] == 1 && (reduced.rank == 1 || reduced.shape[0] >= kLeastDirect);
  }
  void finish(const Pass<Lane>& pass, Lane* states, const Lane* m, int64_t n) const {
    pass.finish(states, m, n, double(geometry.reduced.numel), attrs);
  }
};

// Walks over results, some at a time: a part of the kept axis that is innermost.
template <class Lane, class Reduce>
void each_run(const Job<Lane>& job, int64_t begin, int64_t end, int64_t most, Reduce reduce) {
  const Nest& kept = job.geometry.kept;
  Cursor at(&kept, begin);
  for (int64_t i = begin, n; i < end; i += n) {
    n = std::min({most, end - i, at.left_in_row()});
    const Lane* results = reduce(at.offset(kOfInput), n);
    job.write(results, job.y + at.offset(kOfOutput) * job.y_bytes, kept.strides[kOfOutput][0], n);
    at.advance(n);
  }
}

// Results of which each is reduced by itself.
template <class Lane>
class Rows {
 public:
  Rows(const Job<Lane>* job, bool shares_results)
      : job_(*job), shares_results_(shares_results), is_direct_(job->has_direct_rows()) {}

  void run(int64_t begin, int64_t end) {
    each_run(job_, begin, end, kResults, [this](int64_t offset, int64_t n) {
      std::fill_n(shifts_, n, Lane(0));
      if (job_.op.is_twice) {
        reduce(job_.op.first, offset, n);
        std::copy_n(states_, n, shifts_);
      }
      reduce(job_.op.second, offset, n);
      return states_;
    });
  }

 private:
  void reduce(const Pass<Lane>& pass, int64_t offset, int64_t n) {
    const Nest& reduced = job_.geometry.reduced;
    const int64_t stride = job_.geometry.kept.strides[kOfInput][0];
    if (is_direct_ && reduced.rank == 1 && reduced.numel <= kBlock) {
      pass.rows(job_.numbers(offset), stride, n, reduced.numel, shifts_, job_.attrs, states_);
    } else {
      for (int64_t i = 0; i < n; ++i) states_[i] = state_of(pass, offset + i * stride, shifts_[i]);
    }
    job_.finish(pass, states_, shifts_, n);
  }

  Lane state_of(const Pass<Lane>& pass, int64_t offset, Lane m) {
    const int64_t n = job_.geometry.reduced.numel;
    if (n <= kPart) return state_of_part(pass, offset, m, 0, n);
    const int64_t size = std::max(kPart, ((n + kMostParts - 1) / kMostParts + kBlock - 1) / kBlock * kBlock);
    const int64_t parts = (n + size - 1) / size;
    Lane states[kMostParts];
    const auto reduce_parts = [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) states[i] = state_of_part(pass, offset, m, i * size, std::min(n, (i + 1) * size));
    };
    if (shares_results_) parallel_items(parts, 1, reduce_parts);
    else reduce_parts(0, parts);
    Cascade<Lane> total(&pass);
    for (int64_t i = 0; i < parts; ++i) total.add(states[i]);
    return total.total();
  }

  Lane state_of_part(const Pass<Lane>& pass, int64_t offset, Lane m, int64_t begin, int64_t end) const {
    if (begin == end) return pass.start;
    alignas(64) Lane block[kBlock];
    Cascade<Lane> total(&pass);
    Cursor at(&job_.geometry.reduced, begin);
    for (int64_t i = begin, n; i < end; i += n) {
      n = std::min({kBlock, end - i, is_direct_ ? at.left_in_row() : kBlock});
      const Lane* numbers = is_direct_ ? job_.numbers(offset + at.offset(0)) : block;
      is_direct_ ? at.advance(n) : read(offset, &at, block, n);
      Lane state;
      pass.rows(numbers, n, 1, n, &m, job_.attrs, &state);
      total.add(state);
    }
    return total.total();
  }

  void read(int64_t offset, Cursor* at, Lane* block, int64_t n) const {
    const int64_t stride = job_.geometry.reduced.strides[0][0];
    for (int64_t done = 0, count; done < n; done += count) {
      count = std::min(n - done, at->left_in_row());
      job_.read(job_.at(offset + at->offset(0)), stride, block + done, count);
      at->advance(count);
    }
  }

  const Job<Lane>& job_;
  bool shares_results_;  // several threads reduce one
  bool is_direct_;
  Lane states_[kResults], shifts_[kResults];
};

// Neighbouring results, whose elements are rows.
template <class Lane>
class Columns {
 public:
  explicit Columns(const Job<Lane>* job) : job_(*job) {}

  void run(int64_t begin, int64_t end) {
    each_run(job_, begin, end, kColumns, [this](int64_t offset, int64_t n) {
      std::fill_n(shifts_, n, Lane(0));
      if (job_.op.is_twice) {
        reduce(job_.op.first, offset, n);
        std::copy_n(states_[0], n, shifts_);
      }
      reduce(job_.op.second, offset, n);
      return states_[0];
    });
  }

 private:
  void reduce(const Pass<Lane>& pass, int64_t offset, int64_t n) {
    const Nest& reduced = job_.geometry.reduced;
    const int64_t stride = reduced.strides[0][0];
    const int64_t most = std::min(kRowsOfLevel, kBlockOfRows / n);
    std::fill_n(states_[0], n, pass.start);
    int64_t counts[kLevels] = {};
    Cursor at(&reduced, 0);
    for (int64_t row = 0, count; row < reduced.numel; row += count) {
      count = std::min({most, kRowsOfLevel - counts[0], at.left_in_row()});
      const int64_t start = offset + at.offset(0);
      if (job_.is_stored) {
        pass.columns(job_.numbers(start), stride, count, n, shifts_, job_.attrs, states_[0]);
      } else {
        for (int64_t k = 0; k < count; ++k) job_.read(job_.at(start + k * stride), 1, block_ + k * n, n);
        pass.columns(block_, n, count, n, shifts_, job_.attrs, states_[0]);
      }
      at.advance(count);
      counts[0] += count;
      carry(pass, counts, n);
    }
    for (int64_t level = 1; level < kLevels; ++level) {
      if (counts[level] != 0) pass.merge(states_[0], states_[level], n);
    }
    job_.finish(pass, states_[0], shifts_, n);
  }

  // Takes a level that is full into the next one. Each that is not empty is of `counts` states of the level below.
  void carry(const Pass<Lane>& pass, int64_t* counts, int64_t n) {
    for (int64_t level = 0; level + 1 < kLevels && counts[level] == kRowsOfLevel; ++level) {
      if (counts[level + 1]++ == 0) std::copy_n(states_[level], n, states_[level + 1]);
      else pass.merge(states_[level + 1], states_[level], n);
      counts[level] = 0;
      if (level == 0) std::fill_n(states_[0], n, pass.start);
    }
  }

  const Job<Lane>& job_;
  alignas(64) Lane states_[kLevels][kColumns];
  alignas(64) Lane shifts_[kColumns];
  alignas(64) Lane block_[kBlockOfRows];
};

template <class Lane>
constexpr Class kClassOf = std::is_same_v<Lane, float> ? kFloat32 : std::is_same_v<Lane, double> ? kFloat64 : kInt64;
template <class Lane>
constexpr pointwise::Element kStoredAs = std::is_same_v<Lane, float>    ? pointwise::Element::Float32
                                         : std::is_same_v<Lane, double> ? pointwise::Element::Float64
                                                                        : pointwise::Element::Int64;

}  // namespace

template <class Lane>
void run_on_host(const OpCall& call, const Geometry& geometry, const HostOp<Lane>& op, const void* attrs) {
  const TensorDesc &x = call.inputs[0], &y = call.outputs[0];
  const pointwise::Element element = pointwise::element_of(x.dtype);
  const Job<Lane> job{geometry, op, attrs, static_cast<const char*>(x.data), static_cast<char*>(y.data),
                      item_bytes(x.dtype), item_bytes(y.dtype), pointwise::reader(element, kClassOf<Lane>),
                      pointwise::writer(pointwise::element_of(y.dtype), kClassOf<Lane>), element == kStoredAs<Lane>};
  const int64_t results = geometry.kept.numel;
  const int64_t least = std::max<int64_t>(1, kLeastWork / std::max<int64_t>(1, geometry.reduced.numel));
  if (geometry.has_columns()) {
    constexpr int64_t whole_lines = 16;
    parallel_items(results, std::max(least, whole_lines), [&](int64_t begin, int64_t end) { Columns<Lane>(&job).run(begin, end); });
  } else if (results < kMostParts && geometry.reduced.numel > kPart) {
    Rows<Lane>(&job, true).run(0, results);
  } else {
    parallel_items(results, least, [&](int64_t begin, int64_t end) { Rows<Lane>(&job, false).run(begin, end); });
  }
}

template void run_on_host(const OpCall&, const Geometry&, const HostOp<float>&, const void*);
template void run_on_host(const OpCall&, const Geometry&, const HostOp<double>&, const void*);
template void run_on_host(const OpCall&, const Geometry&, const HostOp<int64_t>&, const void*);

}  // namespace npu::reduce
