#include "emulator/kernel_launch.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <elf.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>

namespace npu::emulator {
namespace {

struct Library {
  std::map<const void*, std::string> functions;  // symbols by address
  std::vector<SharedVariable> shared;
};

std::mutex mutex;

std::vector<char> read_file(const char* path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) file.open("/proc/self/exe", std::ios::binary);  // programs are named as they were called
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void add_symbol(Library& library, const Elf64_Sym& symbol, const char* name, char* base) {
  if (symbol.st_value == 0) return;
  char* address = base + symbol.st_value;
  const int type = ELF64_ST_TYPE(symbol.st_info);
  if (type == STT_FUNC) library.functions.emplace(address, name);
  if (type != STT_OBJECT) return;
  const std::string text = name;
  if (text.find("B10npu_shared") != std::string::npos && text.rfind("_ZZ", 0) == 0) {
    library.shared.push_back({address, symbol.st_size, text});
  }
}

Library read_library(const char* path, char* base) {
  Library library;
  const std::vector<char> file = read_file(path);
  if (file.size() < sizeof(Elf64_Ehdr)) return library;
  const auto* header = reinterpret_cast<const Elf64_Ehdr*>(file.data());
  if (header->e_type == ET_EXEC) base = nullptr;
  const auto* sections = reinterpret_cast<const Elf64_Shdr*>(file.data() + header->e_shoff);
  for (int i = 0; i < header->e_shnum; ++i) {
    if (sections[i].sh_type != SHT_SYMTAB) continue;
    const auto* symbols = reinterpret_cast<const Elf64_Sym*>(file.data() + sections[i].sh_offset);
    const char* names = file.data() + sections[sections[i].sh_link].sh_offset;
    for (size_t k = 0; k < sections[i].sh_size / sizeof(Elf64_Sym); ++k) {
      add_symbol(library, symbols[k], names + symbols[k].st_name, base);
    }
  }
  return library;
}

const Library& library_of(const void* kernel) {
  static std::map<const void*, Library> libraries;             // by the address where they begin
  static std::map<const void*, const Library*> library_of_kernel;  // dladdr takes its time
  const Library*& known = library_of_kernel[kernel];
  if (known != nullptr) return *known;
  Dl_info info{};
  if (dladdr(kernel, &info) == 0) std::abort();  // a kernel is a function of a loaded file
  auto found = libraries.find(info.dli_fbase);
  if (found == libraries.end()) {
    char* base = static_cast<char*>(info.dli_fbase);
    found = libraries.emplace(info.dli_fbase, read_library(info.dli_fname, base)).first;
  }
  known = &found->second;
  return *known;
}

std::string symbol_of(const void* kernel) {
  const Library& library = library_of(kernel);
  const auto found = library.functions.find(kernel);
  return found == library.functions.end() ? "" : found->second;
}

std::string demangled(const std::string& symbol) {
  char* text = abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, nullptr);
  if (text == nullptr) return symbol;
  std::string name = text;
  std::free(text);
  return name.rfind("void ", 0) == 0 ? name.substr(5) : name;
}

}  // namespace

const std::string& kernel_name(const void* kernel) {
  const std::lock_guard lock(mutex);
  static std::map<const void*, std::string> names;
  std::string& name = names[kernel];
  if (!name.empty()) return name;
  name = demangled(symbol_of(kernel));
  if (name.empty()) name = "without a name at " + std::to_string(reinterpret_cast<size_t>(kernel));
  return name;
}

const std::vector<SharedVariable>& shared_variables(const void* kernel) {
  const std::lock_guard lock(mutex);
  return library_of(kernel).shared;
}

size_t static_shared_bytes(const void* kernel) {
  const std::lock_guard lock(mutex);
  const std::string symbol = symbol_of(kernel);
  if (symbol.empty()) return 0;
  const std::string prefix = "_ZZ" + symbol.substr(2) + "E";
  size_t bytes = 0;
  for (const SharedVariable& variable : library_of(kernel).shared) {
    if (variable.symbol.rfind(prefix, 0) == 0) bytes += variable.bytes;
  }
  return bytes;
}

}  // namespace npu::emulator
