#include <set>

#include "bindings/arguments.h"
#include "bindings/bindings.h"
#include "bindings/kept.h"
#include "bindings/unlocked.h"
#include "core/device.h"
#include "core/eager_workspace.h"

namespace npu::bindings {
namespace {

// Streams of create_stream(): nothing else can be destroyed. The GIL guards it.
std::set<std::pair<Device*, void*>>& made_streams() {
  static auto* all = new std::set<std::pair<Device*, void*>>();
  return *all;
}

Device* device_argument(nb::handle name, const char* function) {
  Device* device = nullptr;
  check(find_device(text_argument(name, {function, "device"}), &device));
  return device;
}

uint64_t find_capture(nb::handle device_name, nb::handle stream_handle) {
  Device* device = device_argument(device_name, "find_capture");
  void* given = stream_argument(stream_handle, "find_capture");
  uint64_t number = 0;
  check(device->find_capture(given ? given : device->default_stream(), &number));
  return number;
}

void synchronize(nb::handle device_name, nb::handle stream_handle) {
  Device* device = device_argument(device_name, "synchronize");
  void* given = stream_argument(stream_handle, "synchronize");
  void* stream = given ? given : device->default_stream();
  check(without_gil([&] { return device->synchronize(stream); }));
  drop_passed();
}

uintptr_t create_stream(nb::handle device_name) {
  Device* device = device_argument(device_name, "create_stream");
  void* stream = nullptr;
  check(device->create_stream(&stream));
  made_streams().insert({device, stream});
  return reinterpret_cast<uintptr_t>(stream);
}

void destroy_stream(nb::handle device_name, nb::handle stream_handle) {
  Device* device = device_argument(device_name, "destroy_stream");
  void* stream = stream_argument(stream_handle, "destroy_stream");
  if (made_streams().erase({device, stream}) == 0) {
    raise(Status::invalid("destroy_stream: " + device->name() + " has no stream " +
                          std::to_string(reinterpret_cast<uintptr_t>(stream)) + " that create_stream() has made"));
  }
  check(without_gil([&] {
    Status status = device->synchronize(stream);
    drop_workspace(device, stream);
    device->destroy_stream(stream);
    return status;
  }));
}

}  // namespace

void bind_streams(nb::module_& module) {
  module.def("synchronize", &synchronize, nb::arg("device") = "cuda", nb::arg("stream_handle") = 0,
             nb::sig("def synchronize(device: str = 'cuda', stream_handle: int = 0) -> None"),
             "Wait until a stream has done all its work. 0 is the default stream of the device.\n\n"
             "Raises:\n"
             "    InvalidArgumentError: The stream is being captured.\n"
             "    DeviceError: Something that was launched before has failed.");
  module.def("find_capture", &find_capture, nb::arg("device"), nb::arg("stream_handle"),
             nb::sig("def find_capture(device: str, stream_handle: int) -> int"),
             "A number for the capture in which a stream is, of whoever, that no other capture has; 0 where it\n"
             "captures nothing.");
  module.def("create_stream", &create_stream, nb::arg("device") = "cuda",
             nb::sig("def create_stream(device: str = 'cuda') -> int"),
             "Make a stream that does not wait for the default one, and return its handle.");
  module.def("destroy_stream", &destroy_stream, nb::arg("device"), nb::arg("stream_handle"),
             nb::sig("def destroy_stream(device: str, stream_handle: int) -> None"),
             "Wait for a stream of create_stream(), and destroy it.");
}

}  // namespace npu::bindings
