#include "bindings/bindings.h"
#include "core/kernel.h"

namespace npu::bindings {

void bind_enums(nb::module_& module) {
  nb::enum_<StatusCode>(module, "Status", nb::is_arithmetic(), "How a call ended: the `status` of our errors.")
      .value("Ok", StatusCode::Ok, "All is well.")
      .value("InvalidArgument", StatusCode::InvalidArgument, "The caller is wrong.")
      .value("NotImplemented", StatusCode::NotImplemented, "No kernel takes this.")
      .value("Internal", StatusCode::Internal, "We are wrong.")
      .value("DeviceError", StatusCode::DeviceError, "The device or its driver failed.")
      .value("Unavailable", StatusCode::Unavailable, "Not in this build, or not on this machine.");
  nb::enum_<OpKind>(module, "OpKind", nb::is_arithmetic(),
                    "The ops that npu-cuda names; kinds() tells which of them this build has. The numbers never change.")
      .value("EltwiseAdd", OpKind::EltwiseAdd)
      .value("EltwiseRelu", OpKind::EltwiseRelu)
      .value("Gemm", OpKind::Gemm)
      .value("BiasAdd", OpKind::BiasAdd)
      .value("ReduceSum", OpKind::ReduceSum)
      .value("MseGrad", OpKind::MseGrad)
      .value("ReluBwd", OpKind::ReluBwd)
      .value("SgdStep", OpKind::SgdStep)
      .value("Copy", OpKind::Copy)
      .value("GradZero", OpKind::GradZero)
      .value("AdamStep", OpKind::AdamStep)
      .value("StepInc", OpKind::StepInc)
      .value("BiasCorr", OpKind::BiasCorr)
      .value("LayerNormFwd", OpKind::LayerNormFwd)
      .value("LayerNormBwd", OpKind::LayerNormBwd)
      .value("BatchNormFwd", OpKind::BatchNormFwd)
      .value("BatchNormBwd", OpKind::BatchNormBwd)
      .value("GemmEpilogue", OpKind::GemmEpilogue)
      .value("MultiSgd", OpKind::MultiSgd)
      .value("MultiAdam", OpKind::MultiAdam);
}

}  // namespace npu::bindings
