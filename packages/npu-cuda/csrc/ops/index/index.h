// Ops that move elements by index, and those that order them. Tensors are contiguous, but for those of Cat
// and SliceScatter, which are copies; lowering rules copy others first. Elements are items of 1, 2, 4, 8 or
// 16 bytes, whatever they mean, unless they are added or compared. Results are deterministic: what is written
// twice has the later value, and sums are formed in the order of the index. An index outside its axis is an
// error: on the host before anything is written; on CUDA the kernel stops, as that of PyTorch does, and the
// next wait for the device reports it.
#pragma once

#include "core/call.h"
#include "core/op_info.h"

namespace npu::indexing {

inline constexpr OpKind kIndexSelect{280}, kIndexPut{281}, kEmbeddingBwd{282}, kGather{283}, kScatter{284},
    kCat{285}, kSliceScatter{286}, kAxisMap{287}, kTriangle{288}, kOneHot{289}, kArange{290}, kSort{291},
    kTopK{292};

inline constexpr int kMaxIndices = NPU_MAX_RANK;

// One index tensor for each axis from `axis` on.
struct SelectAttrs {
  int64_t axis = 0;
  int64_t wrap = 0;  // 1: a negative index counts from the end
};

// IndexPut may have a second output: what the values take the place of, in their shape, as it was before.
struct PutAttrs {
  int64_t axis = 0, wrap = 0;
  int64_t accumulate = 0;  // 1: values are added
};

struct EmbeddingBwdAttrs {
  int64_t padding_index = -1;  // has no gradient
};

struct AxisAttrs {
  int64_t axis = 0;
};

struct ScatterAttrs {
  int64_t axis = 0;
  int64_t accumulate = 0;
};

struct SliceAttrs {
  int64_t axis = 0, start = 0, step = 1;
};

// What is read where a coordinate is not inside the input.
enum class Outside : int64_t { Nothing, Fill, Wrap, Reflect, Clamp };
inline constexpr int kModes = 5;

// y at coordinate c of an axis is x at start + step * c; the axes that x lacks are outer ones of size 1.
struct AxisMapAttrs {
  int64_t mode = 0;
  int64_t start[NPU_MAX_RANK] = {};
  int64_t step[NPU_MAX_RANK] = {1, 1, 1, 1, 1, 1, 1, 1};
};

// Zero on one side of a diagonal.
struct TriangleAttrs {
  int64_t diagonal = 0;
  int64_t upper = 0;  // 1: zero below it; 0: above it
};

struct ArangeAttrs {
  double start = 0, step = 1;
};

// The first elements of the sorted axis, as many as the outputs have; equal ones in their order. NaN is the
// largest.
struct SortAttrs {
  int64_t axis = -1;
  int64_t descending = 0;
};

// Begins as SortAttrs, whose layout it has. Of equal elements, on the host only, those that PyTorch takes, in its order.
struct TopKAttrs {
  int64_t axis = -1;
  int64_t largest = 1;
  int64_t sorted = 1;  // 0: in any order
};

std::vector<OpInfo> infos();

// What every kernel of an op takes.
Status select_supported(const OpCall& call);
Status put_supported(const OpCall& call);
Status embedding_bwd_supported(const OpCall& call);
Status gather_supported(const OpCall& call);
Status scatter_supported(const OpCall& call);
Status cat_supported(const OpCall& call);
Status slice_scatter_supported(const OpCall& call);
Status axis_map_supported(const OpCall& call);
Status triangle_supported(const OpCall& call);
Status one_hot_supported(const OpCall& call);
Status arange_supported(const OpCall& call);
Status sort_supported(const OpCall& call);
Status top_supported(const OpCall& call);

std::vector<KernelPtr> host_kernels();
std::vector<KernelPtr> cuda_kernels();

// The parts of the two.
std::vector<KernelPtr> reading_host_kernels();
std::vector<KernelPtr> writing_host_kernels();
std::vector<KernelPtr> making_host_kernels();
std::vector<KernelPtr> sorting_host_kernels();
std::vector<KernelPtr> top_host_kernels();
std::vector<KernelPtr> reading_cuda_kernels();
std::vector<KernelPtr> writing_cuda_kernels();
std::vector<KernelPtr> making_cuda_kernels();
std::vector<KernelPtr> sorting_cuda_kernels();
std::vector<KernelPtr> copying_kernels(DeviceType device);

}  // namespace npu::indexing
