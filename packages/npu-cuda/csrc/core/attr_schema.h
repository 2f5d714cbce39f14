// Schemas of attributes: one declaration, in C++, from which Python derives the format to pack. A schema is a struct of
// numbers without padding whose member initializers are the defaults.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

namespace npu {

// A four-letter id as a number: the letters are its bytes in memory, little-endian, so that it equals
// int.from_bytes(b"GEMM", "little") of Python.
constexpr uint32_t fourcc(const char (&text)[5]) {
  return uint32_t(uint8_t(text[0])) | uint32_t(uint8_t(text[1])) << 8 | uint32_t(uint8_t(text[2])) << 16 |
         uint32_t(uint8_t(text[3])) << 24;
}

struct AttrField {
  std::string name;
  char code;         // of Python's struct module: i I q Q f d
  uint32_t offset;   // bytes
  double default_value;
};

struct AttrSchema {
  uint32_t id;
  std::string name;  // the four letters
  uint32_t bytes;
  std::vector<AttrField> fields;

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

template <class Attrs>
AttrSchema make_schema(const char (&name)[5], std::vector<AttrField> fields) {
  static_assert(std::is_trivially_copyable_v<Attrs>);
  return {fourcc(name), name, sizeof(Attrs), std::move(fields)};
}

}  // namespace npu
