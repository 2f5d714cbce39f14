#include "ops/gemm/epilogue.h"

namespace npu {
namespace gemm {
namespace {

// A bit for each epilogue.
constexpr uint32_t bit(Epilogue epilogue) { return 1u << epilogue; }
constexpr uint32_t kHasBias = bit(Bias) | bit(BiasRelu) | bit(BiasReluAux) | bit(BiasGeluAux);
constexpr uint32_t kReadsAux = bit(DRelu) | bit(DReluBgrad) | bit(DGeluBgrad);
constexpr uint32_t kWritesAux = bit(BiasReluAux) | bit(BiasGeluAux);
constexpr uint32_t kSumsRows = bit(DReluBgrad) | bit(Bgrad) | bit(DGeluBgrad);

// The call of Gemm with the same A, B and D.
OpCall plain_of(const OpCall& call, const GemmAttrs* attrs) {
  OpCall plain = call;
  plain.num_inputs = 2;
  plain.num_outputs = 1;
  plain.attrs = {0, sizeof(*attrs), attrs};
  return plain;
}

GemmAttrs plain_attrs(const OpCall& call) {
  const auto attrs = attrs_of<EpilogueAttrs>(call);
  return {attrs.ta, attrs.tb, attrs.precision, 1, 0};
}

Status expect_row(const TensorDesc* row, const TensorDesc& d, DType dtype, const char* which) {
  if (!row) return {};
  NPU_TRY(expect_dtype(*row, dtype, which));
  if (row->rank == 1 && row->shape[0] == d.shape[d.rank - 1]) return {};
  return other_shape(*row, d, which, "a row of D");
}

Status expect_like(const TensorDesc* aux, const TensorDesc& d, DType dtype) {
  if (!aux) return {};
  NPU_TRY(expect_dtype(*aux, dtype, "aux"));
  return expect_same_shape(*aux, d, "aux", "D");
}

Problem problem_of_epilogue(const OpCall& call, const TensorDesc* aux) {
  const GemmAttrs attrs = plain_attrs(call);
  OpCall plain = plain_of(call, &attrs);
  // Rows of aux are joined as those of D: as if it were C.
  TensorDesc inputs[3] = {call.inputs[0], call.inputs[1], aux ? *aux : TensorDesc{}};
  GemmAttrs with_c = attrs;
  with_c.beta = aux ? 1 : 0;
  plain.attrs.data = &with_c;
  plain.inputs = inputs;
  Problem problem = problem_of(plain);
  problem.has_c = false;
  return problem;
}

}  // namespace

EpilogueCall::EpilogueCall(const OpCall& call) : epilogue(Epilogue{attrs_of<EpilogueAttrs>(call).epilogue}) {
  const auto is = [&](uint32_t epilogues) { return epilogue <= DGeluBgrad && (epilogues >> epilogue & 1); };
  const int inputs = 2 + is(kHasBias | kReadsAux), outputs = 1 + is(kWritesAux) + is(kSumsRows);
  if (call.num_inputs != inputs || call.num_outputs != outputs) return;
  if (is(kHasBias)) bias = &call.inputs[2];
  if (is(kReadsAux)) read_aux = &call.inputs[2];
  if (is(kWritesAux)) written_aux = &call.outputs[1];
  if (is(kSumsRows)) dbias = &call.outputs[1];
}

Problem EpilogueCall::problem(const OpCall& call) const {
  return problem_of_epilogue(call, read_aux ? read_aux : written_aux);
}

Status epilogue_supported(const OpCall& call) {
  const EpilogueCall it(call);
  const uint32_t bits = it.epilogue <= DGeluBgrad ? 1u << it.epilogue : 0;
  if (bits == 0) return Status::not_implemented("epilogue is " + std::to_string(it.epilogue) + ", more than 8");
  const int inputs = 2 + ((kHasBias | kReadsAux) & bits ? 1 : 0);
  const int outputs = 1 + ((kWritesAux | kSumsRows) & bits ? 1 : 0);
  if (call.num_inputs != inputs || call.num_outputs != outputs) {
    return Status::not_implemented("epilogue " + std::to_string(it.epilogue) + " has " + std::to_string(inputs) +
                                   " inputs and " + std::to_string(outputs) + " outputs, not " +
                                   std::to_string(call.num_inputs) + " and " + std::to_string(call.num_outputs));
  }
  const GemmAttrs attrs = plain_attrs(call);
  NPU_TRY(gemm_supported(plain_of(call, &attrs)));
  const DType dtype = call.inputs[0].dtype;
  const TensorDesc& d = call.outputs[0];
  NPU_TRY(expect_dtype(d, dtype, "D"));
  NPU_TRY(expect_row(it.bias, d, dtype, "bias"));
  NPU_TRY(expect_row(it.dbias, d, dtype, "dbias"));
  NPU_TRY(expect_like(it.read_aux ? it.read_aux : it.written_aux, d, dtype));
  if (it.problem(call).items == 1 || d.numel == 0) return {};
  return Status::not_implemented("D is " + text_of(d) + ", which is more than one matrix");
}

}  // namespace gemm

OpInfo gemm_epilogue_info() {
  using gemm::EpilogueAttrs;
  return {.kind = OpKind::GemmEpilogue, .name = "GemmEpilogue", .min_inputs = 2, .max_inputs = 3, .num_outputs = 1,
          .max_outputs = 2,
          .schema = make_schema<EpilogueAttrs>(
              "GEPI", {field("ta", &EpilogueAttrs::ta), field("tb", &EpilogueAttrs::tb),
                       field("precision", &EpilogueAttrs::precision), field("epilogue", &EpilogueAttrs::epilogue)}),
          .attrs_required = true};
}

}  // namespace npu
