// CUDA's device language for g++: the keywords, the built-in variables, barriers and warp functions. Included by
// launch.h only. Tensor cores, TMA, clusters and cooperative groups are not supported: keep such code out of
// emulated builds with #ifndef NPU_EMULATE.
#pragma once

#include <cuda_runtime.h>
#include <math.h>

#include <cstring>
#include <source_location>
#include <type_traits>

#include "emulator/block.h"

#undef __global__
#undef __device__
#undef __host__
#undef __shared__
#undef __constant__
#undef __grid_constant__
#undef __launch_bounds__
#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __grid_constant__
#define __launch_bounds__(...)
// One block runs at a time, so one copy is enough. The tag marks the symbol, for shared_variables(). Align such a
// variable by __align__(16): g++ takes no alignas here.
#define __shared__ static __attribute__((abi_tag("npu_shared")))

extern uint3 threadIdx;
extern uint3 blockIdx;
extern dim3 blockDim;
extern dim3 gridDim;
inline constexpr int warpSize = 32;

namespace npu::emulator {

using Where = std::source_location;

// The dynamic shared memory of the block.
void* dynamic_shared_memory();

template <class T>
T shuffle(const char* name, unsigned mask, T value, unsigned source, Where where) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= sizeof(WarpValue));
  WarpRequest request{WarpOp::Shuffle, name, mask};
  std::memcpy(&request.value, &value, sizeof(T));
  request.source = source;
  const WarpValue result = block().wait_for_warp(request, where);
  std::memcpy(static_cast<void*>(&value), &result, sizeof(T));
  return value;
}

inline unsigned ballot(const char* name, unsigned mask, bool predicate, Where where) {
  return static_cast<unsigned>(block().wait_for_warp({WarpOp::Ballot, name, mask, {predicate, 0}}, where)[0]);
}

template <class T>
T reduce(const char* name, unsigned mask, T value, uint64_t (*combine)(uint64_t, uint64_t), Where where) {
  WarpRequest request{WarpOp::Reduce, name, mask, {static_cast<uint64_t>(value), 0}};
  request.combine = combine;
  return static_cast<T>(block().wait_for_warp(request, where)[0]);
}

}  // namespace npu::emulator

inline void __syncthreads(npu::emulator::Where where = npu::emulator::Where::current()) {
  npu::emulator::block().wait_at_barrier(false, where);
}
inline int __syncthreads_count(int predicate, npu::emulator::Where where = npu::emulator::Where::current()) {
  return npu::emulator::block().wait_at_barrier(predicate != 0, where);
}
inline int __syncthreads_or(int predicate, npu::emulator::Where where = npu::emulator::Where::current()) {
  return npu::emulator::block().wait_at_barrier(predicate != 0, where) > 0;
}
inline int __syncthreads_and(int predicate, npu::emulator::Where where = npu::emulator::Where::current()) {
  return npu::emulator::block().wait_at_barrier(predicate == 0, where) == 0;
}
inline void __syncwarp(unsigned mask = ~0u, npu::emulator::Where where = npu::emulator::Where::current()) {
  npu::emulator::block().wait_for_warp({npu::emulator::WarpOp::Sync, "__syncwarp", mask}, where);
}

template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32,
              npu::emulator::Where where = npu::emulator::Where::current()) {
  const unsigned lane = npu::emulator::block().lane();
  const unsigned segment = lane & ~static_cast<unsigned>(width - 1);
  const unsigned from = segment + (static_cast<unsigned>(source) & static_cast<unsigned>(width - 1));
  return npu::emulator::shuffle("__shfl_sync", mask, value, from, where);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32,
                 npu::emulator::Where where = npu::emulator::Where::current()) {
  const unsigned lane = npu::emulator::block().lane();
  const bool inside = (lane & static_cast<unsigned>(width - 1)) >= delta;
  return npu::emulator::shuffle("__shfl_up_sync", mask, value, inside ? lane - delta : lane, where);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32,
                   npu::emulator::Where where = npu::emulator::Where::current()) {
  const unsigned lane = npu::emulator::block().lane();
  const bool inside = (lane & static_cast<unsigned>(width - 1)) + delta < static_cast<unsigned>(width);
  return npu::emulator::shuffle("__shfl_down_sync", mask, value, inside ? lane + delta : lane, where);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32,
                  npu::emulator::Where where = npu::emulator::Where::current()) {
  const unsigned lane = npu::emulator::block().lane();
  const unsigned from = lane ^ static_cast<unsigned>(lane_mask);
  const bool inside = from < (lane & ~static_cast<unsigned>(width - 1)) + static_cast<unsigned>(width);
  return npu::emulator::shuffle("__shfl_xor_sync", mask, value, inside ? from : lane, where);
}

inline unsigned __ballot_sync(unsigned mask, int predicate,
                              npu::emulator::Where where = npu::emulator::Where::current()) {
  return npu::emulator::ballot("__ballot_sync", mask, predicate != 0, where);
}
inline int __any_sync(unsigned mask, int predicate, npu::emulator::Where where = npu::emulator::Where::current()) {
  return npu::emulator::ballot("__any_sync", mask, predicate != 0, where) != 0;
}
inline int __all_sync(unsigned mask, int predicate, npu::emulator::Where where = npu::emulator::Where::current()) {
  return npu::emulator::ballot("__all_sync", mask, predicate != 0, where) == mask;
}
template <class T>
unsigned __match_any_sync(unsigned mask, T value, npu::emulator::Where where = npu::emulator::Where::current()) {
  npu::emulator::WarpRequest request{npu::emulator::WarpOp::Match, "__match_any_sync", mask};
  std::memcpy(&request.value, &value, sizeof(T));
  return static_cast<unsigned>(npu::emulator::block().wait_for_warp(request, where)[0]);
}
// The lanes that have not ended. Hardware may say fewer where lanes take different branches: make no mask from it.
inline unsigned __activemask() { return npu::emulator::block().live_lanes(); }

#include "emulator/device_functions.h"
