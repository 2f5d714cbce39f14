#include "ops/kernel_loading.h"
#include "ops/lists/cuda_table.cuh"
#include "ops/lists/list_reductions.h"

namespace npu::lists {
namespace {

using namespace pointwise;

struct Number {
  void* data;
  Element element;
};

__device__ double sum_of_block(double mine) {
  __shared__ double sums[kThreads];
  sums[threadIdx.x] = mine;
  __syncthreads();
  for (unsigned half = kThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    __syncthreads();
  }
  return sums[0];
}

// The part of each block.
template <class Fn>
__global__ void __launch_bounds__(kThreads) reduce_parts(const ListTable<1> table, double* parts) {
  const int place = table.find(blockIdx.x);
  const int64_t begin = int64_t{blockIdx.x - table.first_block[place]} * kPart;
  const int64_t rest = table.numel[place] - begin, end = begin + (rest < kPart ? rest : kPart);
  const auto* floats = static_cast<const float*>(table.data[place][0]);
  const bool is_float = table.element[place][0] == Element::Float32;
  double state = 0;
  for (int64_t at = begin + threadIdx.x; at < end; at += kThreads) {
    const double x = is_float ? double(floats[at])
                              : read_element<double>(floats, table.element[place][0], static_cast<uint32_t>(at)).raw;
    state = Fn::step(state, x);
  }
  const double sum = sum_of_block(state);
  if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}

// One block joins the parts.
template <class Fn>
__global__ void __launch_bounds__(kThreads) join_parts(const double* parts, uint32_t count, Number before, Number result) {
  double mine = 0;
  for (uint32_t i = threadIdx.x; i < count; i += kThreads) mine += parts[i];
  const double sum = sum_of_block(mine);
  if (threadIdx.x != 0) return;
  const double old = before.data ? read_element<double>(before.data, before.element, 0).raw : 0;
  write_element(Value<double>::of(Fn::finish(sum, old)), result.data, result.element, 0);
}

template <class Fn>
Status supported(const OpCall& call) {
  NPU_TRY(expect_real_list(call, Fn::kSingles));
  const ReducedList list = list_of<Fn>(call);
  for (int i = 0; i < list.length; ++i) NPU_TRY(expect_rows(as_output(list.tensors[i])));
  return {};
}

template <class Fn>
uint64_t parts_of(const OpCall& call) {
  const ReducedList list = list_of<Fn>(call);
  uint64_t parts = 0;
  for (int i = 0; i < list.length; ++i) parts += static_cast<uint64_t>((list.tensors[i].numel + kPart - 1) / kPart);
  return parts;
}

template <class Fn>
uint64_t workspace_bytes(const OpCall& call) { return parts_of<Fn>(call) * sizeof(double); }

Number number_of(const TensorDesc& tensor) { return {tensor.data, element_of(tensor.dtype)}; }

template <class Fn>
Status launch(const OpCall& call) {
  const ReducedList list = list_of<Fn>(call);
  auto* parts = static_cast<double*>(call.workspace);
  NPU_TRY(each_table<1>(
      list.length, [&](int i) { return as_output(list.tensors[i]); },
      [&](const ListTable<1>& table, uint32_t blocks) {
        double* own = parts;
        parts += blocks;
        return npu::launch(reduce_parts<Fn>, {dim3(blocks), dim3(kThreads)}, call.stream, table, own);
      }));
  const Number before = Fn::kSingles ? number_of(call.inputs[0]) : Number{};
  return npu::launch(join_parts<Fn>, {dim3(1), dim3(kThreads)}, call.stream, static_cast<const double*>(call.workspace),
                     static_cast<uint32_t>(parts_of<Fn>(call)), before, number_of(call.outputs[0]));
}

template <class Fn>
Status prepare(const OpCall& call, void** state) {
  NPU_TRY(load_kernel<reduce_parts<Fn>>(call, state));
  return load_kernel<join_parts<Fn>>(call, state);
}

template <class Fn>
KernelPtr kernel(const char* id) {
  return make_kernel({Fn::kKind, id, DeviceType::Cuda, 5},
                     {supported<Fn>, launch<Fn>, nullptr, workspace_bytes<Fn>, prepare<Fn>});
}

}  // namespace

std::vector<KernelPtr> reduction_cuda_kernels() {
  return {kernel<GlobalNorm>("global_norm.cuda"), kernel<FoundInf>("found_inf.cuda")};
}

}  // namespace npu::lists
