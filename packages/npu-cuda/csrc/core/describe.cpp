#include "core/describe.h"

#include <algorithm>
#include <cstdio>

namespace npu {
namespace {

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.15g", value);
  return text;
}

std::string list(const std::vector<int>& numbers) {
  std::string text;
  for (const int one : numbers) text += (text.empty() ? "" : ", ") + std::to_string(one);
  return text;
}

Cost cost_of_op(const Program::Op& op) { return op.kernel ? op.kernel->cost(op.call) : Cost{0, 0}; }

std::string kernel_of(const Program::Op& op) {
  return op.kernel ? op.kernel->traits().id : "a kernel to be chosen";
}

// Inside of double quotes, in DOT.
std::string escaped(const std::string& text) {
  std::string out;
  for (const char letter : text) {
    if (letter == '"' || letter == '\\') out += '\\';
    out += letter;
  }
  return out;
}

// " s3": by a letter for slots or ops.
std::string node_name(char letter, size_t index) { return std::string{' ', letter} + std::to_string(index); }

std::string place_of(const Program& program, int index) {
  const Program::Slot& slot = program.slots()[index];
  if (slot.is_external) {
    return "alignment " + std::to_string(slot.desc.alignment) + (slot.is_bound ? ", bound" : ", not bound");
  }
  const auto lifetime = lifetime_of(program, index);
  if (!lifetime) return "not used";
  const std::string ops = "ops " + std::to_string(lifetime->first) + " to " + std::to_string(lifetime->second);
  return program.is_final() ? "at " + std::to_string(slot.arena_offset) + ", " + ops : ops;
}

std::string head(const Program& program) {
  const Cost cost = cost_of(program);
  const MemoryUse memory = memory_of(program);
  std::string text = "program on " + program.device()->name() + ": " + std::to_string(program.slots().size()) +
                     " slots, " + std::to_string(program.ops().size()) + " ops";
  if (!program.is_final()) return text + ", not final\n";
  return text + ", " + number(cost.bytes) + " bytes and " + number(cost.flops) + " flops per run\narena: " +
         std::to_string(program.arena_bytes()) + " bytes for " + std::to_string(memory.temporary_bytes) +
         " bytes of temporaries, " + std::to_string(memory.workspace_bytes) + " of them workspace\n";
}

std::string text_of_program(const Program& program) {
  std::string text = head(program);
  for (size_t i = 0; i < program.slots().size(); ++i) {
    const Program::Slot& slot = program.slots()[i];
    text += "slot " + std::to_string(i) + (slot.name.empty() ? "" : " '" + slot.name + "'") +
            (slot.is_external ? ": external " : ": temporary ") + text_of(slot.desc) + ", " +
            place_of(program, static_cast<int>(i)) + "\n";
  }
  for (size_t i = 0; i < program.ops().size(); ++i) {
    const Program::Op& op = program.ops()[i];
    const Cost cost = cost_of_op(op);
    text += "op " + std::to_string(i) + ": " + op.info->name + "(" + list(op.inputs) + ") -> (" +
            list(op.outputs) + ") by " + kernel_of(op) + (op.is_pinned ? ", pinned" : "");
    if (op.call.workspace_bytes > 0) {
      text += ", workspace of " + std::to_string(op.call.workspace_bytes) + " bytes at " +
              std::to_string(op.workspace_offset);
    }
    text += ", " + number(cost.bytes) + " bytes, " + number(cost.flops) + " flops\n";
    for (const Refusal& refusal : op.refusals) text += "  not " + refusal.kernel_id + ": " + refusal.reason + "\n";
  }
  return text;
}

std::string dot_of_program(const Program& program) {
  std::string text = "digraph program {\n";
  for (size_t i = 0; i < program.slots().size(); ++i) {
    const Program::Slot& slot = program.slots()[i];
    text += node_name('s', i) + " [shape=" + (slot.is_external ? "box" : "ellipse") + ", label=\"" +
            std::to_string(i) + " " + escaped(slot.name) + "\\n" + escaped(text_of(slot.desc)) + "\"];\n";
  }
  for (size_t i = 0; i < program.ops().size(); ++i) {
    const Program::Op& op = program.ops()[i];
    const std::string node = node_name('o', i);
    text += node + " [shape=component, label=\"" + std::to_string(i) + " " + escaped(op.info->name) + "\\n" +
            escaped(kernel_of(op)) + "\"];\n";
    for (const int slot : op.inputs) text += node_name('s', static_cast<size_t>(slot)) + " ->" + node + ";\n";
    for (const int slot : op.outputs) text += node + " ->" + node_name('s', static_cast<size_t>(slot)) + ";\n";
  }
  return text + "}\n";
}

}  // namespace

std::string json_of_program(const Program& program);  // describe_json.cpp

Status find_format(const std::string& name, ProgramFormat* out) {
  if (name == "text") return *out = ProgramFormat::Text, Status();
  if (name == "json") return *out = ProgramFormat::Json, Status();
  if (name == "dot") return *out = ProgramFormat::Dot, Status();
  return Status::invalid("there is no format '" + name + "' of programs: there are text, json, dot");
}

std::string describe(const Program& program, ProgramFormat format) {
  if (format == ProgramFormat::Json) return json_of_program(program);
  return format == ProgramFormat::Dot ? dot_of_program(program) : text_of_program(program);
}

Cost cost_of(const Program& program) {
  Cost sum{0, 0};
  for (const Program::Op& op : program.ops()) {
    const Cost cost = cost_of_op(op);
    sum.bytes += cost.bytes;
    sum.flops += cost.flops;
  }
  return sum;
}

MemoryUse memory_of(const Program& program) {
  MemoryUse use;
  for (const Program::Op& op : program.ops()) use.workspace_bytes += op.call.workspace_bytes;
  use.temporary_bytes = use.workspace_bytes;
  for (size_t i = 0; i < program.slots().size(); ++i) {
    const Program::Slot& slot = program.slots()[i];
    if (slot.is_external || !lifetime_of(program, static_cast<int>(i))) continue;
    use.temporary_bytes += static_cast<uint64_t>(span_bytes(slot.desc));
  }
  return use;
}

std::optional<std::pair<int, int>> lifetime_of(const Program& program, int slot) {
  const auto& uses = program.uses()[static_cast<size_t>(slot)];
  if (uses.empty()) return std::nullopt;
  return std::pair(uses.front().op, uses.back().op);
}

}  // namespace npu
