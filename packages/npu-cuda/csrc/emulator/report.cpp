#include "emulator/report.h"

#include <mutex>

namespace npu::emulator {
namespace {

std::mutex mutex;
std::string text_of_last;

}  // namespace

std::string last_report() {
  const std::lock_guard lock(mutex);
  return text_of_last;
}

void set_last_report(std::string text) {
  const std::lock_guard lock(mutex);
  text_of_last = std::move(text);
}

}  // namespace npu::emulator
