// Chains of pointwise ops on the GPU: the compiler that is found for them, and their text.
#include "bindings/arguments.h"
#include "bindings/bindings.h"
#include "bindings/tensors.h"
#include "bindings/unlocked.h"
#include "ops/fused/cuda_text.h"
#include "ops/fused/fused.h"
#ifdef NPU_WITH_CUDA
#include "cuda/compiled_kernels.h"
#include "cuda/nvrtc.h"
#endif

namespace npu::bindings {
namespace {

std::vector<TensorDesc> descs_of(nb::list specs) {
  std::vector<TensorDesc> descs;
  for (nb::handle spec : specs) descs.push_back(on_device(nb::cast<const TensorSpec&>(spec), DeviceType::Cuda, 0));
  return descs;
}

std::string chain_text(nb::list inputs, nb::list outputs, nb::handle schema_id, nb::handle attrs_bytes) {
  const std::vector<TensorDesc> read = descs_of(inputs), written = descs_of(outputs);
  const AttrsArgument attrs(schema_id, attrs_bytes, "chain_text");
  OpCall call{};
  call.struct_size = sizeof(OpCall);
  call.num_inputs = int32_t(read.size());
  call.num_outputs = int32_t(written.size());
  call.inputs = read.data();
  call.outputs = written.data();
  call.attrs = attrs.blob();
  check(check_call(fused_info(), call, false).at("chain_text"));
  fusion::Chain chain;
  check(chain.make(call).at("chain_text"));
  return cuda_text(chain, fusion::CudaLayout(pointwise::nest_of(call), call));
}

#ifdef NPU_WITH_CUDA
nb::dict chain_compiler() {
  std::string absence;
  const Nvrtc* compiler = without_gil([&] { return Nvrtc::find(&absence); });
  nb::dict view;
  view["description"] = compiler ? compiler->description() : "";
  view["absence"] = absence;
  view["cache"] = text_object(compiled_kernel_folder());
  return view;
}

nb::bytes compile_text(const std::string& text, int capability) {
  std::string absence, cubin;
  check(without_gil([&] {
    const Nvrtc* compiler = Nvrtc::find(&absence);
    return compiler ? compiler->compile(text, capability, &cubin) : Status::unavailable(absence);
  }));
  return nb::bytes(cubin.data(), cubin.size());
}

void find_wheels() {
  std::vector<std::string> folders;
  for (nb::handle folder : nb::module_::import_("sys").attr("path")) folders.push_back(nb::cast<std::string>(nb::str(folder)));
  Nvrtc::set_site_folders(std::move(folders));
}
#else
nb::dict chain_compiler() {
  nb::dict view;
  view["description"] = view["cache"] = "";
  view["absence"] = cuda_absence();
  return view;
}

nb::bytes compile_text(const std::string&, int) { raise(Status::unavailable("compile_text: " + cuda_absence())); }

void find_wheels() {}
#endif

}  // namespace

void bind_chains(nb::module_& module) {
  find_wheels();
  module.def("chain_compiler", &chain_compiler, nb::sig("def chain_compiler() -> dict[str, str]"),
             "Return what compiles chains of pointwise ops for the GPU: description (of NVRTC) or absence (why there is\n"
             "none), and cache, the folder of what it has compiled, which may be empty.");
  module.def("chain_text", &chain_text, nb::arg("inputs"), nb::arg("outputs"), nb::arg("schema_id"), nb::arg("attrs_bytes"),
             nb::sig("def chain_text(inputs: list[TensorSpec], outputs: list[TensorSpec], schema_id: int, attrs_bytes: "
                     "Buffer) -> str"),
             "Return the CUDA C++ of a call of Fused that has elements.");
  module.def("compile_text", &compile_text, nb::arg("text"), nb::arg("capability"),
             nb::sig("def compile_text(text: str, capability: int) -> bytes"),
             "Compile CUDA C++ by NVRTC for a compute capability, such as 90, and return the cubin.");
}

}  // namespace npu::bindings
