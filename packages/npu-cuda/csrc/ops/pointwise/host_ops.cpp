#include "ops/pointwise/host_ops.h"

#include "ops/pointwise/host_bytes.h"
#include "ops/pointwise/pointwise.h"

namespace npu::pointwise {

const std::vector<HostOp>& host_ops() {
  static const std::vector<HostOp> all = [] {
    std::vector<HostOp> ops = arithmetic_host_ops();
    for (const HostOp& op : training_host_ops()) ops.push_back(op);
    return ops;
  }();
  return all;
}

std::vector<KernelPtr> host_kernels() {
  std::vector<KernelPtr> kernels;
  for (const HostOp& op : host_ops()) {
    const std::string id = kernel_name(op.row) + "." + class_name(op.type) + ".host";
    KernelFunctions functions = op.functions;
    const LaunchOfBytes launch = op.type == kInt64 ? launch_of_bytes(op.row.kind) : nullptr;
    if (launch) functions.launch = launch;
    kernels.push_back(make_kernel({op.row.kind, id, DeviceType::Host, 5}, functions));
  }
  return kernels;
}

}  // namespace npu::pointwise
