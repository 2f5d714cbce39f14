#include "core/c_kernel.h"

#include <cstdio>

namespace npu {
namespace {

constexpr uint32_t kKnownFlags = NPU_KERNEL_CAPTURE_SAFE | NPU_KERNEL_DETERMINISTIC;

// The functions of a library behind the interface of Kernel.
class CKernel final : public Kernel {
 public:
  CKernel(KernelTraits traits, const npu_kernel& functions) : Kernel(std::move(traits)), functions_(functions) {}

  Status supported(const OpCall& call) const override {
    npu_error error;
    error.text[0] = '\0';
    return status_of(functions_.supported(&call, &error), "supported", error);
  }

  Status launch(const OpCall& call) const override {
    npu_error error;
    error.text[0] = '\0';
    return status_of(functions_.launch(&call, &error), "launch", error);
  }

  uint64_t workspace_bytes(const OpCall& call) const override {
    return functions_.workspace_bytes ? functions_.workspace_bytes(&call) : 0;
  }

  Status prepare(const OpCall& call, void** state) const override {
    *state = nullptr;
    if (!functions_.prepare) return {};
    npu_error error;
    error.text[0] = '\0';
    Status status = status_of(functions_.prepare(&call, state, &error), "prepare", error);
    if (!status.ok()) *state = nullptr;  // what failed made nothing
    return status;
  }

  void release(void* state) const noexcept override {
    if (functions_.release && state) functions_.release(state);
  }

  Cost cost(const OpCall& call) const override {
    return functions_.cost ? functions_.cost(&call) : Kernel::cost(call);
  }

 private:
  Status status_of(int32_t code, const char* function, npu_error& error) const {
    if (code == NPU_OK) [[likely]] return {};
    error.text[sizeof(error.text) - 1] = '\0';
    const std::string who = std::string(function) + " of " + traits().id;
    if (code < 0 || code > NPU_UNAVAILABLE) {
      const std::string text = error.text[0] ? std::string("; it says: ") + error.text : "";
      return Status::internal(who + " returned the status " + std::to_string(code) + ", which there is not" + text);
    }
    return {static_cast<StatusCode>(code), error.text[0] ? error.text : who + " does not say why"};
  }

  npu_kernel functions_;
};

std::string hexadecimal(uint32_t number) {
  char text[16];
  std::snprintf(text, sizeof text, "0x%x", static_cast<unsigned>(number));
  return text;
}

}  // namespace

Status read_kernel(const npu_kernel& kernel, std::string id, OpKind kind, std::string origin, KernelPtr* out) {
  if (!kernel.supported) return Status::invalid("its function supported is NULL");
  if (!kernel.launch) return Status::invalid("its function launch is NULL");
  if (!kernel.prepare && kernel.release) return Status::invalid("it has release, and no prepare that makes a state");
  if (kernel.device_type != NPU_CPU && kernel.device_type != NPU_CUDA) {
    return Status::invalid("its device_type is " + std::to_string(kernel.device_type) +
                           "; NPU_CPU (1) and NPU_CUDA (2) are known");
  }
  if (kernel.flags & ~kKnownFlags) {
    return Status::invalid("its flags are " + hexadecimal(kernel.flags) + "; " + hexadecimal(kKnownFlags) +
                           " are known");
  }
  const int32_t low = kernel.min_compute_capability, high = kernel.max_compute_capability;
  if (low < 0 || high < 0 || (high != 0 && low > high)) {
    return Status::invalid("it is for compute capability " + std::to_string(low) + " to " + std::to_string(high));
  }
  KernelTraits traits{kind, std::move(id), static_cast<DeviceType>(kernel.device_type), kernel.priority,
                      kernel.flags, low, high, std::move(origin)};
  *out = std::make_shared<CKernel>(std::move(traits), kernel);
  return {};
}

}  // namespace npu
