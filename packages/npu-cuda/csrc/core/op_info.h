// The description of an op, independent of its kernels: numbers of tensors, permitted aliases, attributes; and the
// checks of every call before a kernel is selected.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "core/kernel.h"

namespace npu {

// A four-letter id as a number: the letters are its bytes in memory, little-endian, so that it equals
// int.from_bytes(b"GEMM", "little") of Python.
constexpr uint32_t fourcc(const char (&text)[5]) {
  return uint32_t(uint8_t(text[0])) | uint32_t(uint8_t(text[1])) << 8 | uint32_t(uint8_t(text[2])) << 16 |
         uint32_t(uint8_t(text[3])) << 24;
}

// Schemas of attributes: one declaration, in C++, from which Python derives the format to pack. A schema is a struct of
// numbers without padding whose member initializers are the defaults.
struct AttrField {
  std::string name;
  char code;         // of Python's struct module: i I q Q f d
  uint32_t offset;   // bytes
  double default_value;
};

struct AttrSchema {
  uint32_t id;
  std::string name;  // the four letters
  uint32_t bytes;    // of all fields; a payload that ends at the end of a field leaves the rest to the defaults
  std::vector<AttrField> fields;
  bool is_open = false;  // after the fields come bytes that the op checks

  // The format for struct.pack: "<iiiff".
  std::string format() const;
};

template <class Member>
constexpr char struct_code() {
  if constexpr (std::is_same_v<Member, int32_t>) return 'i';
  if constexpr (std::is_same_v<Member, uint32_t>) return 'I';
  if constexpr (std::is_same_v<Member, int64_t>) return 'q';
  if constexpr (std::is_same_v<Member, uint64_t>) return 'Q';
  if constexpr (std::is_same_v<Member, float>) return 'f';
  if constexpr (std::is_same_v<Member, double>) return 'd';
}

template <class Attrs, class Member>
AttrField field(const char* name, Member Attrs::* member) {
  static const Attrs defaults;
  const auto* start = reinterpret_cast<const char*>(&defaults);
  const auto* place = reinterpret_cast<const char*>(&(defaults.*member));
  return {name, struct_code<Member>(), static_cast<uint32_t>(place - start), double(defaults.*member)};
}

// Where a field ends, in bytes from the start.
inline uint32_t end_of(const AttrField& field) {
  const bool is_long = field.code == 'q' || field.code == 'Q' || field.code == 'd';
  return field.offset + (is_long ? 8 : 4);
}

template <class Attrs>
AttrSchema make_schema(const char (&name)[5], std::vector<AttrField> fields) {
  static_assert(std::is_trivially_copyable_v<Attrs>);
  const uint32_t bytes = fields.empty() ? 0 : end_of(fields.back());  // a struct may be longer, by its padding
  return {fourcc(name), name, bytes, std::move(fields), false};
}

inline constexpr int kMaxOutputs = 8;
inline constexpr int kMaxInputs = 64;

// Inputs and outputs of an op are single tensors, then lists. All lists of a call have one length, which is not bounded;
// its tensors are the single ones, those of the first list, those of the second, ...
struct OpInfo {
  OpKind kind{};
  std::string name;
  int min_inputs = 0;
  int max_inputs = 0;
  int num_outputs = 0;
  int max_outputs = 0;  // where it may have more than num_outputs
  int input_lists = 0;   // of min_inputs, the last ones; further inputs are lists as well
  int output_lists = 0;  // of num_outputs, the last ones
  // Per output the inputs that it may be, as bits: the same memory, shape, strides and dtype. In all else outputs and
  // inputs must not overlap, as ranges of bytes. A tensor of a list may be the one at its place in another.
  std::array<uint64_t, kMaxOutputs> in_place{};
  std::optional<AttrSchema> schema{};
  bool attrs_required = false;
  std::string origin = "npu-cuda";

  bool has_lists() const { return input_lists + output_lists > 0; }
  // The length of the lists of a call of so many tensors; 0 if they are not lists of one length.
  int list_length(int call_inputs, int call_outputs) const;
  // Whether an output of such a call, by its number among the tensors, may be this input.
  bool may_be_in_place(int call_inputs, int call_outputs, int output, int input) const;
};

// Bits for OpInfo::in_place.
constexpr uint64_t input_bit(int input) { return uint64_t{1} << input; }

// Counts, devices, pointers, overlaps, attributes: InvalidArgument says which tensor is wrong. `pointers`: memory is known, and is checked, too.
Status check_call(const OpInfo& op, const OpCall& call, bool pointers);
// The part of it that depends on addresses, where these are aligned as the tensors say and not null.
Status check_overlaps(const OpInfo& op, const OpCall& call);

[[gnu::cold]] Status no_such_rank(int rank);

// "(float32[2, 3], float32[3]) -> float32[2, 3]"
std::string text_of(const OpCall& call);

}  // namespace npu
