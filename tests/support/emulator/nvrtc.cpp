// NVRTC for the emulator: compiles text by g++ to a shared library, which the emulated cudaLibraryLoadData loads. The
// environment says how: NPU_FAKE_NVRTC_HEADER, the header of device functions, included first; and
// NPU_FAKE_NVRTC_KNOWS, the one architecture that it knows, in the place of 9.0.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

namespace {

struct Program {
  std::string text, log, image;
};

std::string read_all(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

int copy(const std::string& from, char* to) { return std::memcpy(to, from.data(), from.size()), 0; }

}  // namespace

extern "C" {

int nvrtcVersion(int* major, int* minor) { return *major = 13, *minor = 0, 0; }
const char* nvrtcGetErrorString(int error) { return error == 6 ? "NVRTC_ERROR_COMPILATION" : "NVRTC_ERROR_INTERNAL_ERROR"; }
int nvrtcGetNumSupportedArchs(int* count) { return *count = 1, 0; }
int nvrtcGetSupportedArchs(int* all) {
  const char* known = std::getenv("NPU_FAKE_NVRTC_KNOWS");
  return *all = known ? std::atoi(known) : 90, 0;
}

int nvrtcCreateProgram(void** program, const char* text, const char*, int, const char* const*, const char* const*) {
  return *program = new Program{text, "", ""}, 0;
}
int nvrtcDestroyProgram(void** program) { return delete static_cast<Program*>(*program), 0; }

int nvrtcCompileProgram(void* handle, int, const char* const*) {
  auto& program = *static_cast<Program*>(handle);
  std::string folder = std::filesystem::temp_directory_path() / "npu_nvrtc_XXXXXX";
  if (!mkdtemp(folder.data())) return 11;
  const std::string source = folder + "/chain.cu", made = folder + "/chain.so";
  std::ofstream(source) << program.text;
  const std::string command = std::string("g++ -xc++ -std=c++17 -O1 -fPIC -shared -w -DNPU_EMULATE -ffp-contract=off "
                                          "-fno-strict-aliasing -include ") +
                              std::getenv("NPU_FAKE_NVRTC_HEADER") + " " + source + " -o " + made + " 2>&1";
  FILE* output = popen(command.c_str(), "r");
  for (int c; (c = std::fgetc(output)) != EOF;) program.log += static_cast<char>(c);
  const int status = pclose(output);
  program.image = read_all(made);
  for (const std::string& path : {source, made, folder}) std::remove(path.c_str());
  return status == 0 ? 0 : 6;
}

int nvrtcGetProgramLogSize(void* program, size_t* bytes) { return *bytes = static_cast<Program*>(program)->log.size() + 1, 0; }
int nvrtcGetProgramLog(void* program, char* log) { return std::strcpy(log, static_cast<Program*>(program)->log.c_str()), 0; }
int nvrtcGetCUBINSize(void* program, size_t* bytes) { return *bytes = static_cast<Program*>(program)->image.size(), 0; }
int nvrtcGetCUBIN(void* program, char* image) { return copy(static_cast<Program*>(program)->image, image); }
}
