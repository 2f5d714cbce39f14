// The description of an op, independent of its kernels: numbers of tensors, permitted aliases, attributes.
#pragma once

#include <array>
#include <optional>
#include <string>

#include "core/attr_schema.h"
#include "core/kernel.h"

namespace npu {

inline constexpr int kMaxOutputs = 8;
inline constexpr int kMaxInputs = 64;

struct OpInfo {
  OpKind kind{};
  std::string name;
  int min_inputs = 0;
  int max_inputs = 0;
  int num_outputs = 0;
  // Per output the inputs that it may be, as bits: the same memory, shape, strides and dtype. In all else outputs and
  // inputs must not overlap, as ranges of bytes.
  std::array<uint64_t, kMaxOutputs> in_place{};
  std::optional<AttrSchema> schema{};
  bool attrs_required = false;
  std::string origin = "npu-cuda";
};

// Bits for OpInfo::in_place.
constexpr uint64_t input_bit(int input) { return uint64_t{1} << input; }

// InvalidArgument unless the attributes are those of the op: schema 0 without bytes, or its schema in its exact size.
Status check_given_attrs(const OpInfo& op, const AttrBlob& attrs);
inline Status check_attrs(const OpInfo& op, const AttrBlob& attrs) {
  const bool is_default = attrs.schema_id == 0 && attrs.bytes == 0 && !op.attrs_required;
  return is_default ? Status() : check_given_attrs(op, attrs);
}

}  // namespace npu
