// Captures beside other threads: who may disturb whom, and where a recording may end.
#include <functional>
#include <thread>

#include "emulator/emulator_control.h"
#include "rig.h"

namespace npu::scenarios {
namespace {

void on_another_thread(const std::function<void()>& work) {
  std::exception_ptr failure;
  std::thread([&] {
    try {
      work();
    } catch (...) {
      failure = std::current_exception();
    }
  }).join();
  if (failure) std::rethrow_exception(failure);
}

// Records one op, during which another thread does something.
Status record_beside(CaptureMode mode, bool is_dag, const std::function<void()>& work) {
  const Data data;
  const RecordingPtr recorded = recording(is_dag, mode);
  NPU_TRY(recorded->begin_op({}));
  on_another_thread(work);
  NPU_TRY(launch({add_one(), &data.x, &data.y}, recorded->stream()));
  NPU_TRY(recorded->end_op());
  run(finished(recorded));
  expect(holds(data.y, 2), "the graph is right");
  return {};
}

void allocate_and_free() {
  void* memory = nullptr;
  expect_ok(device().allocate(64, &memory));
  device().free(memory);
}

const Scenario allocate("others_may_allocate_unless_the_mode_is_global", [] {
  for (const bool is_dag : {false, true}) {
    expect_ok(record_beside(CaptureMode::ThreadLocal, is_dag, allocate_and_free));
    expect_ok(record_beside(CaptureMode::Relaxed, is_dag, allocate_and_free));
    const Status status = record_beside(CaptureMode::Global, is_dag, [] {
      void* memory = nullptr;
      expect_invalid(device().allocate(64, &memory),
                     "cudaErrorStreamCaptureUnsupported (900): operation not permitted when stream is capturing");
    });
    expect_invalid(status, "cudaErrorStreamCaptureInvalidated (901)");
  }
});

const Scenario destroy("all_threads_may_destroy_in_any_mode", [] {
  const Data data;
  for (const CaptureMode mode : kModes) {
    ExecutablePtr graph = graph_of({{add_one(), &data.x, &data.y}}), own = graph_of({{add_one(), &data.x, &data.y}});
    void *memory = nullptr, *own_memory = nullptr, *stream = nullptr;
    expect_ok(device().allocate(64, &memory));
    expect_ok(device().allocate(64, &own_memory));
    expect_ok(device().create_stream(&stream));
    expect_ok(record_beside(mode, true, [&] {
      graph = nullptr;
      device().free(memory);
      device().destroy_stream(stream);
    }));
    const RecordingPtr chain = recording(false, mode);
    own = nullptr;
    device().free(own_memory);
    expect_ok(launch({add_one(), &data.x, &data.y}, chain->stream()));
    finished(chain);
  }
});

const Scenario record_and_run("others_may_record_and_run_in_any_mode", [] {
  for (const CaptureMode mode : {CaptureMode::ThreadLocal, CaptureMode::Global}) {
    const Data data;
    expect_ok(record_beside(mode, true, [&] {
      ExecutablePtr graph, next;
      expect_ok(record({{double_and_add(), &data.x, &data.y}}, true, &graph, mode));
      const Stream stream;
      expect_ok(graph->launch(stream.get(), 1));
      expect_ok(update(graph.get(), {{double_and_add(), &data.y, &data.x}}, &next));
    }));
    expect_ok(device().synchronize(device().default_stream()));
  }
});

void record_and_run_ten_times(int number) {
  Buffer x;
  const auto start = static_cast<float>(number);
  expect_ok(x.fill(start));
  for (int round = 0; round < 10; ++round) {
    const Stream stream;
    run(graph_of({{add_one(), &x, &x}, {add_one(), &x, &x, {0}}}, number % 2 == 0), 1, stream.get());
  }
  expect(holds(x, start + 20), "each has run");
}

const Scenario at_once("threads_record_at_the_same_time", [] {
  std::vector<std::thread> threads;
  std::vector<std::string> failures(4);
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&failures, i] {
      try {
        record_and_run_ten_times(i);
      } catch (const std::exception& error) {
        failures[static_cast<size_t>(i)] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& failure : failures) expect(failure.empty(), failure);
});

const Scenario streams("others_cannot_wait_for_the_stream_of_a_recording", [] {
  const RecordingPtr dag = recording(true);
  on_another_thread([&] {
    expect_invalid(device().synchronize(dag->stream()), "waiting is not possible on a stream that captures a graph");
  });
  finished(dag);
});

const Scenario end("recordings_end_on_their_thread", [] {
  const Data data;
  for (const CaptureMode mode : {CaptureMode::ThreadLocal, CaptureMode::Global}) {
    const RecordingPtr chain = recording(false, mode);
    on_another_thread([&] {
      ExecutablePtr graph;
      expect(!this_thread_records(), "the other thread records nothing");
      expect_invalid(chain->finish(&graph),
                     "a recording ends on the thread that began it, unless its mode is relaxed");
    });
    expect_ok(launch({add_one(), &data.x, &data.y}, chain->stream()));
    finished(chain);
  }
  const RecordingPtr relaxed = recording(false, CaptureMode::Relaxed);
  on_another_thread([&] { finished(relaxed); });
  expect(!this_thread_records(), "nor does the first one, then");
});

// As when a garbage collector drops it.
const Scenario drop("recordings_may_be_dropped_anywhere", [] {
  const Data data;
  for (const CaptureMode mode : kModes) {
    RecordingPtr dropped = recording(true, mode);
    on_another_thread([&] { dropped = nullptr; });
    expect(npu_emulator_live_objects("capture") == (mode != CaptureMode::Relaxed), "its thread has to end it");
    expect(!this_thread_records(), "it has ended");
    expect(npu_emulator_live_objects("capture") == 0 && npu_emulator_live_objects("stream") == 0, "and is gone");
    allocate_and_free();
    graph_of({{add_one(), &data.x, &data.y}});
  }
});

const Scenario left("recordings_that_others_drop_end_with_their_thread", [] {
  RecordingPtr dropped, late;
  std::thread owner([&] {
    dropped = recording(true);
    on_another_thread([&] { dropped = nullptr; });
    late = recording(false);
  });
  owner.join();
  expect(npu_emulator_live_objects("capture") == 1, "the first one has");
  late = nullptr;
  expect(npu_emulator_live_objects("stream") == 0, "the other one goes with its stream");
});

}  // namespace
}  // namespace npu::scenarios
