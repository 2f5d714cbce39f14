// Captures beside other threads: who may disturb whom, and where a recording may end.
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
  Pair data;
  std::unique_ptr<Recording> recording;
  NPU_TRY(device().record(mode, is_dag, &recording));
  NPU_TRY(recording->begin_op({}));
  on_another_thread(work);
  NPU_TRY(launch({add_one(), &data.x, &data.y}, recording->stream()));
  NPU_TRY(recording->end_op());
  std::unique_ptr<Executable> graph;
  NPU_TRY(recording->finish(&graph));
  expect_ok(graph->launch(device().default_stream(), 1));
  expect_ok(device().synchronize(device().default_stream()));
  expect(holds(data.y, 2), "the graph is right");
  return {};
}

void allocate_and_free() {
  void* memory = nullptr;
  expect_ok(device().allocate(64, &memory));
  device().free(memory);
}

void others_may_allocate_unless_the_mode_is_global() {
  for (const bool is_dag : {false, true}) {
    expect_ok(record_beside(CaptureMode::ThreadLocal, is_dag, allocate_and_free));
    expect_ok(record_beside(CaptureMode::Relaxed, is_dag, allocate_and_free));
    const Status status = record_beside(CaptureMode::Global, is_dag, [] {
      void* memory = nullptr;
      expect_failure(device().allocate(64, &memory), StatusCode::InvalidArgument,
                     "cudaErrorStreamCaptureUnsupported (900): operation not permitted when stream is capturing");
    });
    expect_failure(status, StatusCode::InvalidArgument, "cudaErrorStreamCaptureInvalidated (901)");
  }
}

void others_may_destroy_in_any_mode() {
  for (const CaptureMode mode : {CaptureMode::ThreadLocal, CaptureMode::Global, CaptureMode::Relaxed}) {
    Pair data;
    std::unique_ptr<Executable> graph;
    expect_ok(record({{add_one(), &data.x, &data.y}}, true, &graph));
    void *memory = nullptr, *stream = nullptr;
    expect_ok(device().allocate(64, &memory));
    expect_ok(device().create_stream(&stream));
    expect_ok(record_beside(mode, true, [&] {
      graph = nullptr;
      device().free(memory);
      device().destroy_stream(stream);
    }));
  }
}

void the_recording_thread_may_destroy() {
  for (const CaptureMode mode : {CaptureMode::ThreadLocal, CaptureMode::Global}) {
    Pair data;
    std::unique_ptr<Executable> graph;
    expect_ok(record({{add_one(), &data.x, &data.y}}, false, &graph));
    void* memory = nullptr;
    expect_ok(device().allocate(64, &memory));
    std::unique_ptr<Recording> recording;
    expect_ok(device().record(mode, false, &recording));
    graph = nullptr;
    device().free(memory);
    expect_ok(launch({add_one(), &data.x, &data.y}, recording->stream()));
    expect_ok(recording->finish(&graph));
  }
}

void others_may_record_and_run_in_any_mode() {
  for (const CaptureMode mode : {CaptureMode::ThreadLocal, CaptureMode::Global}) {
    Pair data;
    expect_ok(record_beside(mode, true, [&] {
      std::unique_ptr<Executable> graph;
      expect_ok(record({{double_and_add(), &data.x, &data.y}}, true, &graph, mode));
      const Stream stream;
      expect_ok(graph->launch(stream.get(), 1));
      std::unique_ptr<Recording> recording;
      std::unique_ptr<Executable> next;
      expect_ok(device().record(CaptureMode::ThreadLocal, true, &recording));
      expect_ok(record_into(recording.get(), {{double_and_add(), &data.y, &data.x}}));
      expect_ok(device().update(graph.get(), recording.get(), &next));
    }));
    expect_ok(device().synchronize(device().default_stream()));
  }
}

void waiting_for_the_device_breaks_every_capture() {
  for (const CaptureMode mode : {CaptureMode::ThreadLocal, CaptureMode::Global, CaptureMode::Relaxed}) {
    const Status status = record_beside(mode, true, [] { (void)cudaDeviceSynchronize(); });
    (void)cudaGetLastError();
    expect_failure(status, StatusCode::InvalidArgument, "cudaErrorStreamCaptureInvalidated (901)");
  }
}

void threads_record_at_the_same_time() {
  std::vector<std::thread> threads;
  std::vector<Status> results(4);
  for (size_t i = 0; i < results.size(); ++i) {
    threads.emplace_back([&results, i] {
      Buffer x;
      const float start = static_cast<float>(i);
      results[i] = [&]() -> Status {
        NPU_TRY(x.fill(start));
        for (int round = 0; round < 10; ++round) {
          std::unique_ptr<Executable> graph;
          NPU_TRY(record({{add_one(), &x, &x}, {add_one(), &x, &x, {0}}}, i % 2 == 0, &graph));
          void* stream = nullptr;
          NPU_TRY(device().create_stream(&stream));
          const StreamOwner owner(static_cast<cudaStream_t>(stream));
          NPU_TRY(graph->launch(stream, 1));
          NPU_TRY(device().synchronize(stream));
        }
        Floats values;
        NPU_TRY(x.read(&values));
        return values == Floats(kCount, start + 20) ? Status() : Status::internal("wrong numbers");
      }();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Status& status : results) expect_ok(status);
}

void others_cannot_wait_for_the_stream_of_a_recording() {
  std::unique_ptr<Recording> recording;
  std::unique_ptr<Executable> graph;
  expect_ok(device().record(CaptureMode::ThreadLocal, true, &recording));
  on_another_thread([&] {
    expect_failure(device().synchronize(recording->stream()), StatusCode::InvalidArgument,
                   "waiting is not possible on a stream that captures a graph");
  });
  expect_ok(recording->finish(&graph));
}

void recordings_end_on_their_thread() {
  Pair data;
  for (const CaptureMode mode : {CaptureMode::ThreadLocal, CaptureMode::Global}) {
    std::unique_ptr<Recording> recording;
    std::unique_ptr<Executable> graph;
    expect_ok(device().record(mode, false, &recording));
    on_another_thread([&] {
      expect(!this_thread_records(), "the other thread records nothing");
      expect_failure(recording->finish(&graph), StatusCode::InvalidArgument,
                     "a recording ends on the thread that began it, unless its mode is relaxed");
    });
    expect_ok(launch({add_one(), &data.x, &data.y}, recording->stream()));
    expect_ok(recording->finish(&graph));
  }
  std::unique_ptr<Recording> recording;
  std::unique_ptr<Executable> graph;
  expect_ok(device().record(CaptureMode::Relaxed, false, &recording));
  on_another_thread([&] { expect_ok(recording->finish(&graph)); });
  expect(!this_thread_records(), "nor does the first one, then");
}

// As when a garbage collector drops it.
void recordings_may_be_dropped_anywhere() {
  for (const CaptureMode mode : {CaptureMode::ThreadLocal, CaptureMode::Global, CaptureMode::Relaxed}) {
    Pair data;
    std::unique_ptr<Recording> recording;
    expect_ok(device().record(mode, true, &recording));
    on_another_thread([&] { recording = nullptr; });
    expect(!this_thread_records(), "it has ended");
    allocate_and_free();
    std::unique_ptr<Executable> graph;
    expect_ok(record({{add_one(), &data.x, &data.y}}, true, &graph));
  }
}

}  // namespace

Scenarios thread_scenarios() {
  return {
      {"others_may_allocate_unless_the_mode_is_global", others_may_allocate_unless_the_mode_is_global},
      {"others_may_destroy_in_any_mode", others_may_destroy_in_any_mode},
      {"the_recording_thread_may_destroy", the_recording_thread_may_destroy},
      {"others_may_record_and_run_in_any_mode", others_may_record_and_run_in_any_mode},
      {"waiting_for_the_device_breaks_every_capture", waiting_for_the_device_breaks_every_capture},
      {"threads_record_at_the_same_time", threads_record_at_the_same_time},
      {"others_cannot_wait_for_the_stream_of_a_recording", others_cannot_wait_for_the_stream_of_a_recording},
      {"recordings_end_on_their_thread", recordings_end_on_their_thread},
      {"recordings_may_be_dropped_anywhere", recordings_may_be_dropped_anywhere},
  };
}

}  // namespace npu::scenarios
