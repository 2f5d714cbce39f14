// Unlocked and Gil: release and take the GIL until the end of a block, and handle an interpreter that exits
// meanwhile.
#pragma once

#include <cxxabi.h>
#include <nanobind/nanobind.h>
#include <unistd.h>

namespace npu::bindings {

// A thread that needs the GIL while the interpreter ends is unwound by Python before 3.14, through code that cannot bear
// it. Here it waits for the end of the process instead, as it does from 3.14 on.
template <class Call>
auto until_the_end(Call call) {
  try {
    return call();
  } catch (abi::__forced_unwind&) {
    for (;;) pause();
  }
}

class Unlocked {
 public:
  Unlocked() = default;
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;
  ~Unlocked() {
    until_the_end([this] { PyEval_RestoreThread(state_); });
  }

 private:
  PyThreadState* state_ = PyEval_SaveThread();
};

// For threads that may not have the GIL, such as those of other libraries.
class Gil {
 public:
  Gil() = default;
  Gil(const Gil&) = delete;
  Gil& operator=(const Gil&) = delete;
  ~Gil() { PyGILState_Release(state_); }

 private:
  PyGILState_STATE state_ = until_the_end([] { return PyGILState_Ensure(); });
};

// What the work returns, done without the GIL.
template <class Work>
auto without_gil(Work work) {
  const Unlocked unlocked;
  return work();
}

}  // namespace npu::bindings
