// Tensor: device memory owned by Python, for tests, tools and users without PyTorch. Views share the
// memory and keep it alive.
#pragma once

#include <atomic>

#include "bindings/arguments.h"
#include "bindings/launch_record.h"
#include "core/device.h"
#include "core/stream_uses.h"

namespace npu::bindings {

// Memory of a device, of exactly these bytes.
class Memory {
 public:
  static std::shared_ptr<Memory> allocate(Device* device, uint64_t bytes);
  // Memory of somebody else, who keeps it and orders its use: a tensor in it is exported without waiting.
  static std::shared_ptr<Memory> borrow(Device* device, void* data, uint64_t bytes);
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory();

  Device* device() const { return device_; }
  char* data() const { return static_cast<char*>(data_); }
  uint64_t bytes() const { return bytes_; }
  bool is_borrowed() const { return is_borrowed_; }
  // By launches on other streams than the default one.
  StreamUses& uses() { return uses_; }
  // Waits for the default stream and for all uses, without the GIL.
  void wait() const;
  // Its owner takes borrowed memory back; tensors in it are of no use from then on.
  void end() { is_over_ = true; }
  bool is_over() const { return is_over_; }
  // How many tensors of others, made by DLPack, are in it now.
  std::atomic<int>& exports() { return exports_; }

 private:
  Memory(Device* device, uint64_t bytes) : device_(device), bytes_(bytes) {}
  Device* device_;
  void* data_ = nullptr;
  uint64_t bytes_;
  StreamUses uses_;
  bool is_borrowed_ = false;
  bool is_over_ = false;
  std::atomic<int> exports_{0};  // consumers may drop theirs on any thread
};

// Whether some of them are tensors of the class below.
bool holds_own_tensors(const Owners& owners);
// Their memory is used by launches on a stream, which the event marks.
void note_use(const Owners& owners, void* stream, const std::shared_ptr<Event>& event);

class Tensor {
 public:
  Tensor(std::shared_ptr<Memory> memory, const TensorDesc& desc) : memory_(std::move(memory)), desc_(desc) {}
  Tensor(Tensor&&) = default;
  ~Tensor();  // needs the GIL

  const TensorDesc& desc() const { return desc_; }
  // InvalidArgumentError where the memory is that of a call of a kernel in Python which has returned.
  void require_memory() const;
  const std::shared_ptr<Memory>& memory() const { return memory_; }

  nb::object dlpack(nb::handle stream, nb::handle max_version, nb::handle device, nb::handle copy) const;
  // All elements in row-major order.
  nb::bytes to_bytes() const;
  void copy_from(nb::handle bytes) const;
  Tensor view(nb::handle shape, nb::handle strides, nb::handle offset, nb::handle dtype) const;

 private:
  std::shared_ptr<Memory> memory_;
  TensorDesc desc_;
};

}  // namespace npu::bindings
