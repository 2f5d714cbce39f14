// The devices, all alike: of compute capability 9.0, with the limits of an H100 and 4 GiB of memory.
#include <cstring>

#include "emulator/runtime.h"

using namespace npu::emulator;

namespace {

thread_local int current_device = 0;

bool is_device(int device) { return device >= 0 && device < runtime().devices; }

}  // namespace

cudaError_t cudaGetDeviceCount(int* count) {
  return call("cudaGetDeviceCount", [&] {
    *count = runtime().devices;
    return cudaSuccess;
  });
}

cudaError_t cudaGetDevice(int* device) {
  return call("cudaGetDevice", [&] {
    *device = is_device(current_device) ? current_device : 0;
    return cudaSuccess;
  });
}

cudaError_t cudaSetDevice(int device) {
  return call("cudaSetDevice", [&] {
    if (!is_device(device)) return cudaErrorInvalidDevice;
    current_device = device;
    return cudaSuccess;
  });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  return call("cudaGetDeviceProperties", [&] {
    if (!is_device(device)) return cudaErrorInvalidDevice;
    *properties = {};
    std::strcpy(properties->name, "Emulated CUDA device");
    properties->totalGlobalMem = kDeviceBytes;
    properties->sharedMemPerBlock = 48 << 10;
    properties->sharedMemPerBlockOptin = 227 << 10;
    properties->warpSize = 32;
    properties->maxThreadsPerBlock = 1024;
    properties->major = 9;
    properties->multiProcessorCount = 132;
    properties->l2CacheSize = 50 << 20;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceSynchronize(void) {
  return call("cudaDeviceSynchronize", CallKind::Wait, [&] {
    const cudaError_t error = check_device_wait();
    if (error == cudaSuccess) finish_everything();
    return error;
  });
}

cudaError_t cudaDriverGetVersion(int* version) {
  return call("cudaDriverGetVersion", [&] {
    *version = CUDART_VERSION;
    return cudaSuccess;
  });
}
