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
  const RecordingPtr recorded = recording(is_dag);
  expect_ok(record_into(recorded.get(), ops));
  GraphOwner graph;
  expect_ok(static_cast<CudaRecording*>(recorded.get())->end(&graph));
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

struct Four {
  Buffer a, b, c, d;
  std::array<Buffer*, 4> all = {&a, &b, &c, &d};
  Four() {
    for (Buffer* buffer : all) expect_ok(buffer->fill(1));
  }
};

const Scenario chain("chain_is_a_row", [] {
  const Four data;
  const std::vector<Op> ops = {
      {add_one(), &data.a, &data.b}, {add_one(), &data.c, &data.d}, {add_one(), &data.a, &data.a}};
  expect(edges_of(ops, false) == Edges{{0, 1}, {1, 2}}, "each launch follows the one before");
});

const Scenario two_launches("ops_of_two_launches_are_followed_at_their_last", [] {
  const Four data;
  const Edges edges = edges_of({{double_and_add(), &data.a, &data.b},
                                {add_one(), &data.b, &data.c, {0}},
                                {add_one(), &data.b, &data.d, {0}}},
                               true);
  expect(edges == Edges{{0, 1}, {1, 2}, {1, 3}}, "both follow the second launch of the first op");
});

const Scenario no_launch("ops_that_launch_nothing_pass_on_what_they_follow", [] {
  const Four data;
  const Edges edges = edges_of({{add_one(), &data.a, &data.b},
                                {add_one(), &data.a, &data.c},
                                {nothing(), &data.b, &data.b, {0, 1}},
                                {nothing(), &data.b, &data.b, {}},
                                {add_one(), &data.b, &data.d, {0, 2, 3}}},
                               true);
  expect(edges == Edges{{0, 2}, {1, 2}}, "through the op that is not there, each edge once");
});

const Scenario empty("graphs_of_nothing_run", [] {
  const Four data;
  for (const bool is_dag : {false, true}) run(graph_of({{nothing(), &data.a, &data.b}}, is_dag), 2);
});

// Random ops on four buffers, with the edges that the planner finds.
std::vector<Op> random_ops(std::mt19937& random, const Four& data, int count, const std::vector<KernelPtr>& kernels) {
  std::vector<Op> ops;
  std::vector<Accesses> accesses;
  const auto range = [](const Buffer& buffer) {
    const auto begin = reinterpret_cast<uint64_t>(buffer.data());
    return ByteRange{begin, begin + kBytes};
  };
  for (int i = 0; i < count; ++i) {
    const Buffer *input = data.all[random() % 4], *output = data.all[random() % 4];
    ops.push_back({kernels[random() % kernels.size()], input, output});
    const bool launches = ops.back().kernel->traits().id != "nothing";
    accesses.push_back(launches ? Accesses{{range(*input)}, {range(*output)}} : Accesses{});
  }
  const std::vector<std::vector<int>> after = hazards(accesses);
  for (size_t i = 0; i < ops.size(); ++i) ops[i].after = after[i];
  return ops;
}

std::vector<Floats> results_of(const std::vector<Op>& ops, bool is_dag, int schedule, const Four& data) {
  for (size_t i = 0; i < data.all.size(); ++i) expect_ok(data.all[i]->fill(static_cast<float>(i)));
  const ExecutablePtr graph = graph_of(ops, is_dag);
  npu_emulator_set_schedule(schedule);
  run(graph, 2);
  npu_emulator_set_schedule(0);
  std::vector<Floats> results(data.all.size());
  for (size_t i = 0; i < results.size(); ++i) expect_ok(data.all[i]->read(&results[i]));
  return results;
}

const Scenario any_order("dag_computes_what_the_chain_does_in_any_order", [] {
  std::mt19937 random(7);
  const Four data;
  for (int round = 0; round < 20; ++round) {
    const std::vector<Op> ops = random_ops(random, data, 8, {add_one(), double_and_add(), nothing()});
    const std::vector<Floats> expected = results_of(ops, false, 0, data);
    for (const int schedule : {0, 1, 2 + round}) {
      expect(results_of(ops, true, schedule, data) == expected, "round " + std::to_string(round) + ", same numbers");
    }
  }
});

const Scenario hazard_edges("edges_are_the_hazards", [] {
  std::mt19937 random(11);
  const Four data;
  for (int round = 0; round < 20; ++round) {
    const std::vector<Op> ops = random_ops(random, data, 8, {add_one()});
    Edges expected;
    for (size_t i = 0; i < ops.size(); ++i) {
      for (const int op : ops[i].after) expected.emplace(op, static_cast<int>(i));
    }
    expect(edges_of(ops, true) == expected, "round " + std::to_string(round) + ", one edge for each hazard");
  }
});

}  // namespace
}  // namespace npu::scenarios
