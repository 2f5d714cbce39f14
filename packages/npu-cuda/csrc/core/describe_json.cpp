// A program as JSON, on one line.
#include <cmath>
#include <cstdio>

#include "core/describe.h"

namespace npu {

std::string json_of_program(const Program& program);

namespace {

std::string json(const std::string& text) {
  std::string out = "\"";
  for (const char letter : text) {
    char code[8];
    std::snprintf(code, sizeof code, "\\u%04x", static_cast<unsigned char>(letter));
    const bool is_plain = static_cast<unsigned char>(letter) >= 0x20 && letter != '"' && letter != '\\';
    out += is_plain ? std::string(1, letter) : std::string(code);
  }
  return out + "\"";
}

std::string json(bool value) { return value ? "true" : "false"; }
std::string json(int value) { return std::to_string(value); }
std::string json(int64_t value) { return std::to_string(value); }
std::string json(uint64_t value) { return std::to_string(value); }
std::string json(uint32_t value) { return std::to_string(value); }

std::string json(double value) {
  if (!std::isfinite(value)) return "null";
  char text[40];
  std::snprintf(text, sizeof text, "%.17g", value);
  return text;
}

template <class Iterator>
std::string json_list(Iterator begin, Iterator end) {
  std::string text;
  for (; begin != end; ++begin) text += (text.empty() ? "" : ", ") + json(*begin);
  return "[" + text + "]";
}

// Members of an object, in the order they are added.
class Members {
 public:
  template <class Value>
  Members& add(const char* name, const Value& value) {
    return add_json(name, json(value));
  }
  Members& add_json(const char* name, const std::string& value) {
    text_ += (text_.empty() ? "\"" : ", \"") + std::string(name) + "\": " + value;
    return *this;
  }
  std::string object() const { return "{" + text_ + "}"; }

 private:
  std::string text_;
};

template <class Each>
std::string json_objects(size_t count, Each each) {
  std::string text;
  for (size_t i = 0; i < count; ++i) text += (i ? ", " : "") + each(i);
  return "[" + text + "]";
}

std::string json_of_slot(const Program& program, size_t index) {
  const Program::Slot& slot = program.slots()[index];
  const TensorDesc& desc = slot.desc;
  const auto lifetime = lifetime_of(program, static_cast<int>(index));
  const bool is_placed = program.is_final() && !slot.is_external && lifetime;
  Members members;
  members.add("name", slot.name).add("is_external", slot.is_external);
  members.add("is_bound", slot.is_external && slot.is_bound);
  members.add("dtype", name_of(desc.dtype)).add_json("shape", json_list(desc.shape, desc.shape + desc.rank));
  members.add_json("strides", json_list(desc.strides, desc.strides + desc.rank)).add("alignment", desc.alignment);
  members.add("bytes", span_bytes(desc)).add_json("arena_offset", is_placed ? json(slot.arena_offset) : "null");
  members.add_json("first_op", lifetime ? json(lifetime->first) : "null");
  return members.add_json("last_op", lifetime ? json(lifetime->second) : "null").object();
}

std::string json_of_op(const Program::Op& op) {
  const Cost cost = op.kernel ? op.kernel->cost(op.call) : Cost{0, 0};
  Members members;
  members.add("op", op.info->name).add_json("kernel_id", op.kernel ? json(op.kernel->traits().id) : "null");
  members.add("is_pinned", op.is_pinned).add_json("inputs", json_list(op.inputs.begin(), op.inputs.end()));
  members.add_json("outputs", json_list(op.outputs.begin(), op.outputs.end()));
  members.add("schema_id", op.call.attrs.schema_id).add("attr_bytes", op.call.attrs.bytes);
  members.add("workspace_bytes", op.call.workspace_bytes);
  members.add_json("workspace_offset", op.call.workspace_bytes ? json(op.workspace_offset) : "null");
  members.add("bytes", cost.bytes).add("flops", cost.flops);
  members.add_json("refusals", json_objects(op.refusals.size(), [&](size_t i) {
    return Members().add("kernel_id", op.refusals[i].kernel_id).add("reason", op.refusals[i].reason).object();
  }));
  return members.object();
}

}  // namespace

std::string json_of_program(const Program& program) {
  const Cost cost = cost_of(program);
  const MemoryUse memory = memory_of(program);
  Members members;
  members.add("device", program.device()->name()).add("is_final", program.is_final());
  members.add("arena_bytes", program.arena_bytes()).add("temporary_bytes", memory.temporary_bytes);
  members.add("workspace_bytes", memory.workspace_bytes).add("bytes", cost.bytes).add("flops", cost.flops);
  const auto slot = [&](size_t i) { return json_of_slot(program, i); };
  const auto op = [&](size_t i) { return json_of_op(program.ops()[i]); };
  members.add_json("slots", json_objects(program.slots().size(), slot));
  members.add_json("ops", json_objects(program.ops().size(), op));
  return members.object() + "\n";
}

}  // namespace npu
