// The edges of a captured graph: those of the hazards between ops, whatever an op launches.
#include <random>
#include <set>

#include "core/planner.h"
#include "cuda/cuda_recording.h"
#include "emulator/emulator_control.h"
#include "rig.h"

namespace npu::scenarios {
namespace {

using Edges = std::multiset<std::pair<int, int>>;  // an edge that is there twice is seen

// Edges of the graph of a recording, by the position of its nodes in the order of their launch.
Edges edges_of(const std::vector<Op>& ops, bool is_dag) {
  std::unique_ptr<Recording> recording;
  expect_ok(device().record(CaptureMode::ThreadLocal, is_dag, &recording));
  expect_ok(record_into(recording.get(), ops));
  GraphOwner graph;
  expect_ok(static_cast<CudaRecording*>(recording.get())->end(&graph));
  size_t num_nodes = 0, num_edges = 0;
  expect_ok(cuda_check(cudaGraphGetNodes(graph.get(), nullptr, &num_nodes), "nodes"));
  std::vector<cudaGraphNode_t> nodes(num_nodes);
  expect_ok(cuda_check(cudaGraphGetNodes(graph.get(), nodes.data(), &num_nodes), "nodes"));
  expect_ok(cuda_check(cudaGraphGetEdges(graph.get(), nullptr, nullptr, nullptr, &num_edges), "edges"));
  std::vector<cudaGraphNode_t> from(num_edges), to(num_edges);
  expect_ok(cuda_check(cudaGraphGetEdges(graph.get(), from.data(), to.data(), nullptr, &num_edges), "edges"));
  const auto position = [&](cudaGraphNode_t node) {
    return static_cast<int>(std::find(nodes.begin(), nodes.end(), node) - nodes.begin());
  };
  Edges edges;
  for (size_t i = 0; i < num_edges; ++i) edges.emplace(position(from[i]), position(to[i]));
  return edges;
}

struct Data {
  Buffer a, b, c, d;
  Data() {
    for (Buffer* buffer : {&a, &b, &c, &d}) expect_ok(buffer->fill(1));
  }
};

void chain_is_a_row() {
  Data data;
  const std::vector<Op> ops = {
      {add_one(), &data.a, &data.b}, {add_one(), &data.c, &data.d}, {add_one(), &data.a, &data.a}};
  const Edges edges = edges_of(ops, false);
  expect(edges == Edges{{0, 1}, {1, 2}}, "each launch follows the one before");
}

void dag_has_the_stated_edges() {
  Data data;
  const Edges edges = edges_of({{add_one(), &data.a, &data.b},
                                {add_one(), &data.a, &data.c},
                                {add_one(), &data.b, &data.d, {0}},
                                {add_one(), &data.c, &data.d, {1, 2}}},
                               true);
  expect(edges == Edges{{0, 2}, {1, 3}, {2, 3}}, "a fork and a join");
}

void ops_of_two_launches_are_followed_at_their_last() {
  Data data;
  const Edges edges = edges_of({{double_and_add(), &data.a, &data.b},
                                {add_one(), &data.b, &data.c, {0}},
                                {add_one(), &data.b, &data.d, {0}}},
                               true);
  expect(edges == Edges{{0, 1}, {1, 2}, {1, 3}}, "both follow the second launch of the first op");
}

void ops_that_launch_nothing_pass_on_what_they_follow() {
  Data data;
  const Edges edges = edges_of({{add_one(), &data.a, &data.b},
                                {add_one(), &data.a, &data.c},
                                {nothing(), &data.b, &data.b, {0, 1}},
                                {nothing(), &data.b, &data.b, {}},
                                {add_one(), &data.b, &data.d, {0, 2, 3}}},
                               true);
  expect(edges == Edges{{0, 2}, {1, 2}}, "through the op that is not there, each edge once");
}

void graphs_of_nothing_run() {
  Data data;
  for (const bool is_dag : {false, true}) {
    std::unique_ptr<Executable> graph;
    expect_ok(record({{nothing(), &data.a, &data.b}}, is_dag, &graph));
    expect_ok(graph->launch(device().default_stream(), 2));
    expect_ok(device().synchronize(device().default_stream()));
  }
}

// Random ops on four buffers, with the edges that the planner finds.
std::vector<Op> random_ops(std::mt19937& random, const std::array<Buffer*, 4>& buffers, int count) {
  std::vector<Op> ops;
  std::vector<Accesses> accesses;
  const auto range = [](const Buffer& buffer) {
    const auto begin = reinterpret_cast<uint64_t>(buffer.data());
    return ByteRange{begin, begin + kCount * sizeof(float)};
  };
  for (int i = 0; i < count; ++i) {
    const Buffer *input = buffers[random() % 4], *output = buffers[random() % 4];
    ops.push_back({random() % 2 ? add_one() : double_and_add(), input, output});
    accesses.push_back({{range(*input)}, {range(*output)}});
    if (random() % 4) continue;
    ops.back().kernel = nothing();
    accesses.back() = {};
  }
  const std::vector<std::vector<int>> after = hazards(accesses);
  for (size_t i = 0; i < ops.size(); ++i) ops[i].after = after[i];
  return ops;
}

std::vector<Floats> run(const std::vector<Op>& ops, bool is_dag, int schedule,
                        const std::array<Buffer*, 4>& buffers) {
  for (size_t i = 0; i < buffers.size(); ++i) expect_ok(buffers[i]->fill(static_cast<float>(i)));
  std::unique_ptr<Executable> graph;
  expect_ok(record(ops, is_dag, &graph));
  npu_emulator_set_schedule(schedule);
  expect_ok(graph->launch(device().default_stream(), 2));
  expect_ok(device().synchronize(device().default_stream()));
  npu_emulator_set_schedule(0);
  std::vector<Floats> results(buffers.size());
  for (size_t i = 0; i < buffers.size(); ++i) expect_ok(buffers[i]->read(&results[i]));
  return results;
}

void dag_computes_what_the_chain_does_in_any_order() {
  std::mt19937 random(7);
  Data data;
  const std::array<Buffer*, 4> buffers = {&data.a, &data.b, &data.c, &data.d};
  for (int round = 0; round < 20; ++round) {
    const std::vector<Op> ops = random_ops(random, buffers, 8);
    const std::vector<Floats> expected = run(ops, false, 0, buffers);
    for (const int schedule : {0, 1, 2 + round}) {
      expect(run(ops, true, schedule, buffers) == expected, "round " + std::to_string(round) + ", same numbers");
    }
  }
}

void edges_are_the_hazards() {
  std::mt19937 random(11);
  Data data;
  const std::array<Buffer*, 4> buffers = {&data.a, &data.b, &data.c, &data.d};
  for (int round = 0; round < 20; ++round) {
    std::vector<Op> ops = random_ops(random, buffers, 10);
    std::erase_if(ops, [](const Op& op) { return op.kernel->traits().id == "nothing"; });
    std::vector<Accesses> accesses;
    for (Op& op : ops) {
      op.kernel = add_one();
      const auto in = reinterpret_cast<uint64_t>(op.input->data());
      const auto to = reinterpret_cast<uint64_t>(op.output->data());
      accesses.push_back({{{in, in + 4}}, {{to, to + 4}}});
    }
    const std::vector<std::vector<int>> after = hazards(accesses);
    Edges expected;
    for (size_t i = 0; i < ops.size(); ++i) {
      ops[i].after = after[i];
      for (const int op : after[i]) expected.emplace(op, static_cast<int>(i));
    }
    expect(edges_of(ops, true) == expected, "round " + std::to_string(round) + ", one edge for each hazard");
  }
}

}  // namespace

Scenarios dag_scenarios() {
  return {
      {"chain_is_a_row", chain_is_a_row},
      {"dag_has_the_stated_edges", dag_has_the_stated_edges},
      {"ops_of_two_launches_are_followed_at_their_last", ops_of_two_launches_are_followed_at_their_last},
      {"ops_that_launch_nothing_pass_on_what_they_follow", ops_that_launch_nothing_pass_on_what_they_follow},
      {"graphs_of_nothing_run", graphs_of_nothing_run},
      {"dag_computes_what_the_chain_does_in_any_order", dag_computes_what_the_chain_does_in_any_order},
      {"edges_are_the_hazards", edges_are_the_hazards},
  };
}

}  // namespace npu::scenarios
