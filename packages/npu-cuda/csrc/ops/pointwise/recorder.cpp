#include "ops/pointwise/recorder.h"

#include <algorithm>
#include <set>

namespace npu::pointwise {

thread_local Recording* RecorderScope::current = nullptr;

int RecorderScope::load(int input) { return current->add({"load", {}, double(input)}); }

int RecorderScope::constant(double number) { return current->add({"constant", {}, number}); }

int RecorderScope::call(const char* name, std::initializer_list<int> operands) {
  return current->add({name, operands});
}

void RecorderScope::set_result(int place) { current->results.push_back(place); }

int Recording::add(Instruction instruction) {
  const auto is_same = [&](const Instruction& each) {
    return each.name == "constant" && each.constant == instruction.constant;
  };
  auto found = instructions.end();
  if (instruction.name == "constant") found = std::find_if(instructions.begin(), instructions.end(), is_same);
  const auto place = static_cast<int>(found - instructions.begin());
  if (found == instructions.end()) instructions.push_back(std::move(instruction));
  return place;
}

int64_t Recording::flops() const {
  static const std::set<std::string> free = {"load",    "constant",      "less",  "less_equal",
                                             "greater", "greater_equal", "equal", "not_equal"};
  int64_t count = 0;
  for (const Instruction& each : instructions) {
    if (free.contains(each.name)) continue;
    count += each.name == "fma" ? 2 : 1;
  }
  return count;
}

}  // namespace npu::pointwise
