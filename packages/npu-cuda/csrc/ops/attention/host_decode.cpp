// Attention of one query of each head on the host, as in decoding. Nothing is transposed and keys are read once, in any dtype;
// those that a mask hides from every head of a group are not read at all, so the time does not depend on the length of a
// cache, but on the part of it that is in use.
#include <algorithm>
#include <cstring>

#include "ops/attention/host_decode_loop.h"
#include "ops/threads.h"

namespace npu::attention {
namespace {

constexpr int64_t kMasked = 64;  // keys whose masks are read at once

int64_t aligned(int64_t elements) { return (elements + kAligned - 1) / kAligned * kAligned; }

using DecodeFunction = void (*)(const Decode*);

DecodeFunction loop_of(DType dtype) {
  static const DecodeFunction floats = widest<float, DecodeLoops<float>::Loop>(),
                              halves = widest<float, DecodeLoops<Half>::Loop>(),
                              brain_floats = widest<float, DecodeLoops<BFloat16>::Loop>();
  return dtype == kFloat32 ? floats : dtype == kFloat16 ? halves : brain_floats;
}

// Takes the elements of a row from kAligned places of it in turns: rows of keys and values that are far apart come from
// memory in nearly half the time of those that follow each other, since the processor reads ahead in each of these places.
// Places begin with different rows, which are not in the same few sets of the first cache.
template <class T>
void spread(T* row, int64_t count, T* copy) {
  const int64_t steps = count / kAligned;
  std::copy_n(row, steps * kAligned, copy);
  for (int64_t step = 0; step < steps; ++step) {
    for (int64_t place = 0; place < kAligned; ++place) {
      row[step * kAligned + place] = copy[place * steps + (step + place) % steps];
    }
  }
}

// How a call is cut into groups, and the workspace of a thread.
class Call {
 public:
  explicit Call(const Geometry& geometry)
      : g_(geometry), heads_(g_.heads_of_group()), has_head_masks_(g_.has_mask && g_.mask_sizes[1] != 1),
        masks_(has_head_masks_ ? heads_ : 1), size_(aligned(g_.size)), value_size_(aligned(g_.value_size)),
        width_(aligned(g_.is_causal ? 1 : g_.keys)), is_copied_(!is_near(g_.k, g_.size) || !is_near(g_.v, g_.value_size)) {}

  int64_t slice() const {
    const int64_t rows = kAligned * (size_ + value_size_), masks = masks_ * (kMasked + width_);
    return rows + heads_ * (size_ + value_size_ + width_) + 2 * width_ + masks + aligned(2 * heads_);
  }
  int64_t groups() const { return g_.batch * g_.groups; }
  void run(int64_t begin, int64_t end, float* slice) const;

 private:
  // The keys that heads take, and what masks add to their scores.
  struct Taken {
    int32_t *keys, *copy;  // [width_]
    float* added;          // [masks_, width_]
    float* masks;          // [masks_, kMasked]: those that are read
    int64_t count;
  };

  void take_keys(int64_t batch, int64_t first_head, Taken* taken) const;
  bool read_masks(int64_t batch, int64_t first_head, int64_t first, int64_t count, float* masks) const;
  void run_group(int64_t batch, int64_t group, const Taken& taken, float* slice) const;
  Rows rows_of(const View& view, int64_t batch, int64_t group, int64_t size, int64_t padded, float* copies) const;
  static bool is_near(const View& view, int64_t size) { return size % kAligned == 0 && view.strides[3] == 1; }

  const Geometry& g_;
  int64_t heads_;
  bool has_head_masks_;  // masks of a group are not those of another
  int64_t masks_, size_, value_size_, width_;
  bool is_copied_;  // rows of keys and values are
};

Rows Call::rows_of(const View& view, int64_t batch, int64_t group, int64_t size, int64_t padded, float* copies) const {
  const int64_t item = item_bytes(g_.dtype);
  if (is_copied_) std::fill(copies, copies + kAligned * padded, 0.0f);
  return {view.at(item, batch, group), view.strides[2] * item, view.strides[3], size, padded,
          is_copied_ ? pointwise::reader(pointwise::element_of(g_.dtype), pointwise::kFloat32) : nullptr, copies};
}

// What masks add to the scores of `count` keys, [masks_, kMasked]; false where all of them are hidden.
bool Call::read_masks(int64_t batch, int64_t first_head, int64_t first, int64_t count, float* masks) const {
  static constexpr char hidden[kMasked] = {};
  const int64_t item = g_.mask_is_truth ? 1 : item_bytes(g_.dtype);
  const auto element = g_.mask_is_truth ? pointwise::Element::Bool : pointwise::element_of(g_.dtype);
  const pointwise::ReadRow read = pointwise::reader(element, pointwise::kFloat32);
  bool has_keys = false;
  for (int64_t head = 0; head < masks_; ++head) {
    const char* const at = g_.mask.at(item, batch, first_head + head) + first * g_.mask.strides[3] * item;
    float* const to = masks + head * kMasked;
    if (g_.mask_is_truth && g_.mask.strides[3] == 1 && std::memcmp(at, hidden, size_t(count)) == 0) {
      std::fill(to, to + count, -kInfinity);
      continue;
    }
    read(at, g_.mask.strides[3], to, count);
    for (int64_t i = 0; i < count; ++i) {
      if (g_.mask_is_truth) to[i] = to[i] != 0 ? 0.0f : -kInfinity;
      has_keys = has_keys || to[i] != -kInfinity;
    }
  }
  return has_keys;
}

void Call::take_keys(int64_t batch, int64_t first_head, Taken* taken) const {
  const int64_t keys = g_.is_causal ? std::min<int64_t>(1, g_.keys) : g_.keys;
  int64_t count = 0;
  for (int64_t first = 0; first < keys; first += kMasked) {
    const int64_t size = std::min(kMasked, keys - first);
    if (g_.has_mask && !read_masks(batch, first_head, first, size, taken->masks)) continue;
    for (int64_t i = 0; i < size; ++i) {
      bool is_taken = !g_.has_mask;
      for (int64_t head = 0; head < masks_; ++head) {
        const float added = g_.has_mask ? taken->masks[head * kMasked + i] : 0.0f;
        taken->added[head * width_ + count] = added;
        is_taken = is_taken || added != -kInfinity;
      }
      taken->keys[count] = static_cast<int32_t>(first + i);
      count += is_taken;
    }
  }
  taken->count = count;
  spread(taken->keys, count, taken->copy);
  for (int64_t head = 0; head < masks_; ++head) {
    spread(taken->added + head * width_, count, reinterpret_cast<float*>(taken->copy));
  }
}

void Call::run(int64_t begin, int64_t end, float* slice) const {
  auto* const keys = reinterpret_cast<int32_t*>(slice);
  float* const added = slice + 2 * width_;
  float* const masks = added + masks_ * width_;
  Taken taken{keys, keys + width_, added, masks, 0};
  int64_t known = -1;  // the batch whose keys these are
  for (int64_t index = begin; index < end; ++index) {
    const int64_t batch = index / g_.groups, group = index % g_.groups;
    if (batch != known || has_head_masks_) take_keys(batch, group * heads_, &taken);
    known = batch;
    run_group(batch, group, taken, masks + masks_ * kMasked);
  }
}

void Call::run_group(int64_t batch, int64_t group, const Taken& taken, float* slice) const {
  const int64_t item = item_bytes(g_.dtype), first_head = group * heads_;
  float* const copies = slice;
  float* const value_copies = copies + kAligned * size_;
  float* const queries = value_copies + kAligned * value_size_;
  float* const sums = queries + heads_ * size_;
  float* const scores = sums + heads_ * value_size_;
  float* const totals = scores + heads_ * width_;
  const auto element = pointwise::element_of(g_.dtype);
  const pointwise::ReadRow read = pointwise::reader(element, pointwise::kFloat32);
  std::fill(queries, queries + heads_ * size_, 0.0f);
  for (int64_t head = 0; head < heads_; ++head) {
    float* const query = queries + head * size_;
    read(g_.q.at(item, batch, first_head + head), g_.q.strides[3], query, g_.size);
    for (int64_t i = 0; i < g_.size; ++i) query[i] *= g_.scale;
  }
  const Decode decode{heads_, taken.count, width_, taken.keys, taken.added, masks_ == 1 ? 0 : width_,
                      rows_of(g_.k, batch, group, g_.size, size_, copies),
                      rows_of(g_.v, batch, group, g_.value_size, value_size_, value_copies), queries, scores, sums,
                      totals, totals + heads_};
  loop_of(is_copied_ ? kFloat32 : g_.dtype)(&decode);
  const pointwise::WriteRow write = pointwise::writer(element, pointwise::kFloat32);
  for (int64_t head = 0; head < heads_; ++head) {
    write(sums + head * value_size_, g_.o.at(item, batch, first_head + head), g_.o.strides[3], g_.value_size);
    if (g_.has_lse) *reinterpret_cast<float*>(g_.lse.at(sizeof(float), batch, first_head + head)) = decode.logarithms[head];
  }
}

}  // namespace

uint64_t decode_workspace_bytes(const Geometry& geometry) {
  return uint64_t(sizeof(float)) * uint64_t(Call(geometry).slice() * thread_count());
}

void decode(const Geometry& geometry, void* workspace, uint64_t bytes) {
  const Call call(geometry);
  const int64_t slices = int64_t(bytes / sizeof(float)) / call.slice(), items = call.groups();
  const int64_t shares = std::min(slices, items);  // groups that follow one another have the same keys
  parallel_tasks(shares, slices, [&](int64_t share, int slice) {
    call.run(items * share / shares, items * (share + 1) / shares, static_cast<float*>(workspace) + slice * call.slice());
  });
}

}  // namespace npu::attention
