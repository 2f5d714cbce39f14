// Views: the tensors of a call as passed to a Python kernel. They belong to the caller, and are valid while it runs.
#pragma once

#include "bindings/tensor_class.h"
#include "bindings/tensors.h"

namespace npu::bindings {

// Tensors whose memory is out of reach when this object goes.
class Views {
 public:
  Views() = default;
  Views(const Views&) = delete;
  Views& operator=(const Views&) = delete;
  ~Views() {
    for (const auto& memory : memories_) memory->end();
  }

  nb::list of(const TensorDesc* tensors, int count) {
    nb::list list;
    for (int i = 0; i < count; ++i) list.append(view(tensors[i]));
    return list;
  }

  // The workspace as bytes; None where the kernel has none.
  nb::object of_workspace(const OpCall& call) {
    if (call.workspace_bytes == 0) return nb::none();
    TensorDesc desc = call.outputs[0];  // for its device
    desc.data = call.workspace;
    desc.dtype = {1, 8, 1};
    desc.rank = 1;
    desc.shape[0] = static_cast<int64_t>(call.workspace_bytes);
    check(complete(&desc, nullptr));
    return view(desc);
  }

 private:
  nb::object view(const TensorDesc& desc) {
    Device* device = nullptr;
    check(find_device(static_cast<DeviceType>(desc.device_type), desc.device_id, &device));
    memories_.push_back(Memory::borrow(device, desc.data, static_cast<uint64_t>(span_bytes(desc))));
    return nb::cast(Tensor(memories_.back(), desc));
  }

  std::vector<std::shared_ptr<Memory>> memories_;
};

}  // namespace npu::bindings
