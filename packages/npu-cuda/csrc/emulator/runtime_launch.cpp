// A first runtime: launches run at once.
#include "emulator/emulator_control.h"
#include "emulator/kernel_launch.h"
#include "emulator/report.h"
namespace npu::emulator {
static cudaError_t pending = cudaSuccess;
cudaError_t launch_kernel(const KernelLaunch& launch, cudaStream_t) {
  if (pending == cudaSuccess && !run_kernel(launch)) { pending = cudaErrorLaunchFailure; return cudaSuccess; }
  return pending;
}
}
cudaError_t cudaStreamSynchronize(cudaStream_t) { return npu::emulator::pending; }
cudaError_t cudaDeviceSynchronize(void) { return npu::emulator::pending; }
void npu_emulator_reset(void) { npu::emulator::pending = cudaSuccess; npu::emulator::set_schedule(0); npu::emulator::set_last_report(""); }
void npu_emulator_set_schedule(int schedule) { npu::emulator::set_schedule(schedule); }
const char* npu_emulator_last_report(void) {
  thread_local std::string text;
  text = npu::emulator::last_report();
  return text.c_str();
}
