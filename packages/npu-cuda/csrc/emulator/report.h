// The report on the last kernel that violated a rule.
#pragma once

#include <string>

namespace npu::emulator {

// "kernel relu<float>(float const*, float*, long), block (0,0,0), thread (3,0,0): ..."; empty if there was none.
std::string last_report();
void set_last_report(std::string text);

}  // namespace npu::emulator
