/* The emulator of CUDA: kernels in .cu files, and the code that launches and captures them, on a machine without a
 * GPU. For tests only (NPU_CUDA=EMULATE). Three parts, read in this order:
 *   device_code.h, block.h   CUDA's device language for g++. The threads of a block are fibers: one runs until it
 *                            waits for others. Blocks run one after the other. Misuse ends a launch with a report.
 *   runtime_*.cpp            the functions of the CUDA runtime that a backend needs, with the rules of streams,
 *                            capture and graphs. Device memory is malloc of the exact size, full of NaN;
 *                            host pointers are device pointers. The device is one of compute capability 9.0.
 *   this header              what tests set and read.
 *
 * Build: compile each .cu file by `g++ -std=c++20 -xc++` and link emulator/ *.cpp in place of libcudart, all with
 *   -DNPU_WITH_CUDA -DNPU_EMULATE -I<csrc> -I<kernel.h> -isystem <cuda/include>   (the headers of CUDA 13)
 *   -fvisibility=hidden -fno-strict-aliasing -ffp-contract=off -g -O1   and do not strip; -ldl
 * with AddressSanitizer: -fsanitize=address -fno-omit-frame-pointer, and python under LD_PRELOAD=libasan.so with
 *   ASAN_OPTIONS=detect_leaks=0:detect_stack_use_after_return=0
 *
 * Not here: tensor cores, TMA, clusters, cooperative groups, the weak order of memory, timing, and blocks that
 * wait for other blocks.
 */
#ifndef NPU_EMULATOR_CONTROL_H
#define NPU_EMULATOR_CONTROL_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* Everything below as at the start, no error pending, and the capture mode of this thread is Global again, as a
 * failed cudaThreadExchangeStreamCaptureMode may leave it otherwise. What is alive stays. */
void npu_emulator_reset(void);

/* The order in which blocks, threads, the nodes of a graph and deferred work run, where several are right: 0 as
 * written, 1 reversed, any larger number seeds a random one. A correct kernel gives the same bits in each. */
void npu_emulator_set_schedule(int schedule);

/* 1: work waits until something synchronizes with it, and only what must run before that runs. */
void npu_emulator_set_deferred(int deferred);

/* How many devices there are; 1 at first. They share memory and streams: this is for code that chooses one. */
void npu_emulator_set_devices(int count);

/* Makes the k-th call of the runtime from now on fail, once; of the function `name` ("cudaMalloc"), or of any if
 * it is NULL. k = 0 cancels. The call does nothing, except where it releases or ends something. */
void npu_emulator_fail_call(const char* name, int64_t k, int error);

/* Calls of a function since the last reset; of all if name is NULL. */
int64_t npu_emulator_calls(const char* name);

/* Of device memory. */
int64_t npu_emulator_live_bytes(void);

/* How many there are: "stream", "event", "graph", "exec", "allocation", "capture" (one not ended); NULL: all. */
int64_t npu_emulator_live_objects(const char* kind);

/* What the last kernel that went wrong did: "kernel f(float*), block (0,0,0), thread (3,0,0): ...". Empty if none.
 * Valid until the next call on this thread. */
const char* npu_emulator_last_report(void);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
