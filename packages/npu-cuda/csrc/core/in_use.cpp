#include "core/in_use.h"

#include <pthread.h>

namespace npu {

std::atomic<uint32_t> generation_of_process{1};

namespace {

// When the library is loaded. Where the system cannot tell of a fork, such a use goes on in the child.
[[maybe_unused]] const int registered = pthread_atfork(nullptr, nullptr, [] { ++generation_of_process; });

}  // namespace
}  // namespace npu
