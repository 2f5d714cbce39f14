#include "core/graph.h"

#include "core/exclusive.h"
#include "core/program.h"

namespace npu {
namespace {

std::string text_of(const std::string& op, const std::string& kernel_id) { return op + " by " + kernel_id; }

Status in_use() {
  return Status::invalid("this graph is in use, by another thread or by a call from within: it does one thing at a time");
}

Status check_same_ops(const std::vector<GraphNode>& nodes, const std::vector<Program::Op>& ops) {
  if (nodes.size() != ops.size()) {
    return Status::invalid("update: the graph has " + std::to_string(nodes.size()) + " ops, the program has " +
                           std::to_string(ops.size()));
  }
  for (size_t i = 0; i < nodes.size(); ++i) {
    const std::string kernel_id = ops[i].kernel ? ops[i].kernel->traits().id : "no kernel yet";
    if (nodes[i].op == ops[i].info->name && nodes[i].kernel_id == kernel_id) continue;
    return Status::invalid("update: op " + std::to_string(i) + " of the graph is " +
                           text_of(nodes[i].op, nodes[i].kernel_id) + ", of the program it is " +
                           text_of(ops[i].info->name, kernel_id));
  }
  return {};
}

}  // namespace

Status Graph::launch(void* stream, int64_t count) {
  if (!stream) return Status::invalid("launch: the stream is null; that of CUDA without a name is the handle 1");
  if (count < 0) return Status::invalid("launch: a graph cannot run " + std::to_string(count) + " times");
  const Exclusive exclusive(&is_running_);
  if (!exclusive.is_held()) return in_use();
  bool is_capturing = false;
  NPU_TRY(parts_.device->is_capturing(stream, &is_capturing));
  if (is_capturing) {
    return Status::invalid("launch: the stream is being captured, and a graph does not become part of another "
                           "one; launch it on another stream, or capture the ops themselves");
  }
  return parts_.executable->launch(stream, count);
}

Status Graph::update(Program* program) {
  const Exclusive exclusive(&is_running_);
  if (!exclusive.is_held()) return in_use();
  if (program->device() != parts_.device) {
    return Status::invalid("update: the graph is of " + parts_.device->name() + ", the program of " +
                           program->device()->name());
  }
  NPU_TRY(check_same_ops(parts_.nodes, program->ops()));
  std::unique_ptr<Recording> recording;
  std::vector<GraphNode> nodes;
  NPU_TRY(program->record(parts_.mode, parts_.is_dag, &recording, &nodes));
  std::unique_ptr<Executable> replacement;
  NPU_TRY(parts_.device->update(parts_.executable.get(), recording.get(), &replacement).at("update"));
  if (replacement) parts_.executable = std::move(replacement);
  parts_.nodes = std::move(nodes);
  parts_.needs = {program->resources()};
  return {};
}

std::string Graph::dot() const {
  std::string text = "digraph graph_of_launches {\n  node [shape=box];\n";
  for (size_t i = 0; i < nodes().size(); ++i) {
    const GraphNode& node = nodes()[i];
    const std::string name = "  n" + std::to_string(i);
    text += name + " [label=\"" + std::to_string(i) + " " + node.op + "\\n" + node.kernel_id + "\"];\n";
    for (const int before : node.after) text += "  n" + std::to_string(before) + " ->" + name.substr(1) + ";\n";
  }
  return text + "}\n";
}

}  // namespace npu
