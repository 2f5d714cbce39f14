#include "cuda/architectures.h"

#include <cctype>
#include <sstream>

namespace npu {
namespace {

// "90", "90-real", "90-virtual", "90a-real", "100f-real".
bool runs_on(const std::string& word, int capability) {
  size_t end = 0;
  while (end < word.size() && std::isdigit(static_cast<unsigned char>(word[end]))) ++end;
  if (end == 0 || end > 4) return true;
  const int built_for = std::stoi(word.substr(0, end));
  const std::string kind = word.substr(end);
  if (kind[0] == 'a') return capability == built_for;  // of this architecture alone
  const bool is_of_its_generation = capability / 10 == built_for / 10 && capability >= built_for;
  const bool is_compiled_there = kind.empty() || kind == "-virtual";  // PTX, which the driver compiles
  return is_of_its_generation || (is_compiled_there && capability >= built_for);
}

}  // namespace

bool has_code_for(const std::string& architectures, int compute_capability) {
  std::istringstream words(architectures);
  bool is_any = true;
  for (std::string word; words >> word;) {
    if (runs_on(word, compute_capability)) return true;
    is_any = false;
  }
  return is_any;
}

}  // namespace npu
