#include "ops/reduce/host_call.h"

#include <algorithm>

#include "ops/reduce/host_elements.h"
#include "ops/threads.h"

namespace npu::reduce {
namespace {

constexpr int64_t kPart = 64 * kBlock; // elements of one result that another thread may reduce
constexpr int64_t kMostParts = 64;
constexpr int64_t kResults = 256;      // that are finished and written at a time
constexpr int64_t kBlockOfRows = 4096; // numbers of rows that are taken into columns at a time
constexpr int64_t kColumns = 512;
constexpr int64_t kLevels = 6;
constexpr int64_t kRowsOfLevel = 32;  // states that one of the next level takes

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
  Elements<Lane> x;
  Results y;
  const Lane* given;

  // What the second pass takes for each of n results.
  void copy_given(const Cursor& at, int64_t n, Lane* shifts) const {
    const Lane* from = given + at.offset(kOfOutput);
    for (int64_t i = 0; i < n; ++i) shifts[i] = from[i * y.stride];
  }
  void finish(const Pass<Lane>& pass, Lane* states, const Lane* m, int64_t n) const {
    pass.finish(states, m, n, double(geometry.reduced.numel), attrs);
  }
};

// Results of which each is reduced by itself.
template <class Lane>
class Rows {
 public:
  Rows(const Job<Lane>* job, bool shares_results)
      : job_(*job), shares_results_(shares_results), is_direct_(job->x.has_direct_rows()) {}

  void run(int64_t begin, int64_t end) {
    each_run(job_.geometry.kept, begin, end, kResults, [this](const Cursor& at, int64_t n) {
      const int64_t offset = at.offset(kOfInput);
      std::fill_n(shifts_, n, Lane(0));
      if (job_.given) {
        job_.copy_given(at, n, shifts_);
      } else if (job_.op.is_twice) {
        reduce(job_.op.first, offset, n);
        std::copy_n(states_, n, shifts_);
      }
      reduce(job_.op.second, offset, n);
      job_.y.put(states_, at, n);
    });
  }

 private:
  void reduce(const Pass<Lane>& pass, int64_t offset, int64_t n) {
    const Nest& reduced = job_.geometry.reduced;
    const int64_t stride = job_.geometry.kept.strides[kOfInput][0];
    if (is_direct_ && reduced.rank == 1 && reduced.numel <= kBlock) {
      pass.rows(job_.x.numbers(offset), stride, n, reduced.numel, shifts_, job_.attrs, states_);
    } else if (reduced.rank == 1 && reduced.strides[0][0] == 1 && stride == reduced.numel && stride <= kBlock / 2) {
      reduce_blocks(pass, offset, n, stride);
    } else {
      for (int64_t i = 0; i < n; ++i) states_[i] = state_of(pass, offset + i * stride, shifts_[i]);
    }
    job_.finish(pass, states_, shifts_, n);
  }

  // Short rows one after the other in memory are read together.
  void reduce_blocks(const Pass<Lane>& pass, int64_t offset, int64_t n, int64_t width) {
    alignas(64) Lane block[kBlock];
    for (int64_t i = 0, count; i < n; i += count) {
      count = std::min(kBlock / width, n - i);
      job_.x.read_row(offset + i * width, 1, block, count * width);
      pass.rows(block, width, count, width, shifts_ + i, job_.attrs, states_ + i);
    }
  }

  Lane state_of(const Pass<Lane>& pass, int64_t offset, Lane m) {
    const int64_t n = job_.geometry.reduced.numel;
    if (n <= kPart) return state_of_part(pass, offset, m, 0, n);
    const int64_t size = std::max(kPart, ((n + kMostParts - 1) / kMostParts + kBlock - 1) / kBlock * kBlock);
    const int64_t parts = (n + size - 1) / size;
    Lane states[kMostParts];
    const auto reduce_parts = [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        states[i] = state_of_part(pass, offset, m, i * size, std::min(n, (i + 1) * size));
      }
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
      const Lane* numbers = is_direct_ ? job_.x.numbers(offset + at.offset(0)) : block;
      is_direct_ ? at.advance(n) : job_.x.read(offset, &at, block, n);
      Lane state;
      pass.rows(numbers, n, 1, n, &m, job_.attrs, &state);
      total.add(state);
    }
    return total.total();
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
    each_run(job_.geometry.kept, begin, end, kColumns, [this](const Cursor& at, int64_t n) {
      const int64_t offset = at.offset(kOfInput);
      std::fill_n(shifts_, n, Lane(0));
      if (job_.given) {
        job_.copy_given(at, n, shifts_);
      } else if (job_.op.is_twice) {
        reduce(job_.op.first, offset, n);
        std::copy_n(states_[0], n, shifts_);
      }
      reduce(job_.op.second, offset, n);
      job_.y.put(states_[0], at, n);
    });
  }

 private:
  void reduce(const Pass<Lane>& pass, int64_t offset, int64_t n) {
    const Nest& reduced = job_.geometry.reduced;
    const int64_t stride = reduced.strides[0][0];
    const int64_t most = job_.x.is_stored() ? kRowsOfLevel : std::min(kRowsOfLevel, kBlockOfRows / n);
    std::fill_n(states_[0], n, pass.start);
    int64_t counts[kLevels] = {};
    Cursor at(&reduced, 0);
    for (int64_t row = 0, count; row < reduced.numel; row += count) {
      count = std::min({most, kRowsOfLevel - counts[0], at.left_in_row()});
      const int64_t start = offset + at.offset(0);
      if (job_.x.is_stored()) {
        pass.columns(job_.x.numbers(start), stride, count, n, shifts_, job_.attrs, states_[0]);
      } else {
        for (int64_t k = 0; k < count; ++k) job_.x.read_row(start + k * stride, 1, block_ + k * n, n);
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

  // Takes a level that is full into the next one. Each that is not empty is of `counts` states of the level
  // below.
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

}  // namespace

template <class Lane>
void run_on_host(const OpCall& call, const Geometry& geometry, const HostOp<Lane>& op, const void* attrs,
                 const Lane* given) {
  const Job<Lane> job{geometry, op, attrs, {call.inputs[0], &geometry.reduced},
                      {call.outputs[0], geometry, kClassOf<Lane>}, given};
  const int64_t results = geometry.kept.numel, least = least_results(geometry);
  if (geometry.has_columns()) {
    constexpr int64_t whole_lines = 16;
    const auto reduce = [&](int64_t begin, int64_t end) { Columns<Lane>(&job).run(begin, end); };
    parallel_items(results, std::max(least, whole_lines), reduce);
  } else if (results < kMostParts && geometry.reduced.numel > kPart) {
    Rows<Lane>(&job, true).run(0, results);
  } else {
    const auto reduce = [&](int64_t begin, int64_t end) { Rows<Lane>(&job, false).run(begin, end); };
    parallel_items(results, least, reduce);
  }
}

template void run_on_host(const OpCall&, const Geometry&, const HostOp<float>&, const void*, const float*);
template void run_on_host(const OpCall&, const Geometry&, const HostOp<double>&, const void*, const double*);
template void run_on_host(const OpCall&, const Geometry&, const HostOp<int64_t>&, const void*, const int64_t*);

}  // namespace npu::reduce
