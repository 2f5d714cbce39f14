// Runs the scenario that is named, or lists them all. 0: all is as expected; 1: it is not, and standard error says
// what.
#include <cstdio>

#include "emulator/emulator_control.h"
#include "rig.h"

int main(int count, char** arguments) {
  using namespace npu::scenarios;
  if (count < 2) {
    for (const auto& [name, run] : Scenario::all()) std::printf("%s\n", name.c_str());
    return 0;
  }
  npu_emulator_reset();
  try {
    Scenario::all().at(arguments[1])();
    expect(npu_emulator_live_objects(nullptr) == 0, "nothing is left alive at the end");
    expect(npu_emulator_live_bytes() == 0, "no memory is left at the end");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", arguments[1], error.what());
    return 1;
  }
  return 0;
}
