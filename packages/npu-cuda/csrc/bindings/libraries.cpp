#include "core/library.h"

#include "bindings/bindings.h"
#include "bindings/errors.h"
#include "bindings/unlocked.h"

namespace npu::bindings {
namespace {

nb::list list_of(const std::vector<std::string>& texts) {
  nb::list list;
  for (const std::string& text : texts) list.append(nb::str(text.c_str()));
  return list;
}

nb::dict dict_of(const LibraryInfo& info) {
  nb::dict dict;
  dict["name"] = info.name.c_str();
  dict["path"] = nb::steal(PyUnicode_DecodeFSDefault(info.path.c_str()));
  dict["ops"] = list_of(info.ops);
  dict["kernels"] = list_of(info.kernels);
  return dict;
}

// A path as the file system has it, of a str or an os.PathLike.
std::string path_argument(nb::handle path) {
  PyObject* bytes = nullptr;
  if (!PyUnicode_FSConverter(path.ptr(), &bytes)) throw nb::python_error();
  const nb::bytes owned = nb::steal<nb::bytes>(bytes);
  return {owned.c_str(), owned.size()};
}

nb::dict load(nb::handle path) {
  const std::string text = path_argument(path);
  LibraryInfo info;
  Status status;
  {
    const Unlocked unlocked;  // what the library does when it is loaded is its own affair
    status = load_library(text, &info);
  }
  check(status);
  return dict_of(info);
}

nb::list libraries() {
  std::vector<LibraryInfo> loaded;
  {
    const Unlocked unlocked;  // a library that is being loaded may need it
    loaded = loaded_libraries();
  }
  nb::list list;
  for (const LibraryInfo& info : loaded) list.append(dict_of(info));
  return list;
}

}  // namespace

void bind_libraries(nb::module_& module) {
  module.def("load_library", &load, nb::arg("path"),
             nb::sig("def load_library(path: str | os.PathLike[str]) -> dict[str, Any]"),
             "Load a shared library of kernels: all it offers, or nothing. It stays loaded.\n\n"
             "Returns:\n"
             "    Its name, path, ops (their names) and kernels (their ids).\n\n"
             "Raises:\n"
             "    InvalidArgumentError: There is no such library, it is loaded already, or what it offers is wrong.\n"
             "    UnavailableError: It says that it cannot be used on this machine.");
  module.def("libraries", &libraries, nb::sig("def libraries() -> list[dict[str, Any]]"),
             "The libraries of kernels that are loaded, as load_library returned them.");
}

}  // namespace npu::bindings
