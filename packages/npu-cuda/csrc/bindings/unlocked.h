// Unlocked: releases the GIL until the end of a block, and handles an interpreter that exits meanwhile.
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

// What the work returns, done without the GIL.
template <class Work>
auto without_gil(Work work) {
  const Unlocked unlocked;
  return work();
}

}  // namespace npu::bindings
