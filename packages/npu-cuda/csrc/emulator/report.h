// The text about the last kernel that did what no kernel may.
#pragma once

#include <string>

namespace npu::emulator {

// "kernel relu<float>(float const*, float*, long), block (0,0,0), thread (3,0,0): ..."; empty if there was none.
std::string last_report();
void set_last_report(std::string text);

}  // namespace npu::emulator
