// StepLoop and RowLoop: steps of native programs, on batches that another Python thread fills in, or on rows of tensors.
#include "core/step_loop.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "bindings/bindings.h"
#include "bindings/holders.h"
#include "bindings/tensors.h"
#include "bindings/unlocked.h"
#include "core/row_loop.h"

namespace npu::bindings {
namespace {

// The memory of tensors of the CPU; `owners` keep it.
std::vector<MemoryBlock> memory_of(nb::handle tensors, ArgName name, bool is_dense, Owners* owners) {
  TensorArguments read(name.function, nullptr, Hold::Longer);
  std::vector<MemoryBlock> blocks;
  const int count = read.add_all(tensors, name.name, Role::Output);
  for (int i = 0; i < count; ++i) {
    const TensorDesc& desc = read.descs()[i];
    const ArgName item{name.function, name.name, i};
    if (desc.device_type != NPU_CPU) raise(Status::invalid(item.text() + " is not in the memory of the CPU"));
    if (is_dense && !is_contiguous(desc)) raise(Status::invalid(item.text() + " is not contiguous"));
    blocks.push_back({static_cast<char*>(desc.data), size_t(span_bytes(desc))});
  }
  read.give_owners(owners);
  return blocks;
}

// Programs of host whose slots are bound; `owners` keep them.
std::vector<Program*> programs_of(nb::handle programs, const char* function, Owners* owners) {
  std::vector<Program*> found;
  for (const nb::handle item : nb::iter(programs)) {
    ProgramHolder* holder = nullptr;
    if (!nb::try_cast(item, holder)) raise_other_type({function, "programs"}, "a list of Program", item);
    holder->require_kept(function);
    found.push_back(&holder->core());
    if (found.back()->device()->type() != DeviceType::Host) {
      raise(Status::invalid(std::string(function) + ": a program is not of host"));
    }
    owners->push_back(nb::borrow(item));
  }
  return found;
}

class StepLoopHolder {
 public:
  StepLoopHolder(nb::handle programs, nb::handle inputs, nb::handle slots, nb::handle results) {
    const std::vector<MemoryBlock> fixed = memory_of(inputs, {"StepLoop", "inputs"}, false, &owners_);
    std::vector<std::vector<MemoryBlock>> rows;
    for (const nb::handle slot : nb::iter(slots)) {
      rows.push_back(memory_of(slot, {"StepLoop", "slots"}, false, &owners_));
      if (!are_alike(rows.back(), fixed)) raise(Status::invalid("StepLoop: a slot has other tensors than inputs"));
    }
    if (rows.empty()) raise(Status::invalid("StepLoop: slots is empty"));
    loop_.emplace(programs_of(programs, "StepLoop", &owners_), fixed, std::move(rows),
                  memory_of(results, {"StepLoop", "results"}, true, &owners_));
  }

  StepLoop& core() { return *loop_; }

  bool run(nb::handle rows, nb::handle limit, double seconds) {
    const int64_t steps = int_argument(limit, {"run", "limit"}, 0, std::numeric_limits<int64_t>::max());
    Owners owners;
    const std::vector<MemoryBlock> memory = memory_of(rows, {"run", "rows"}, true, &owners);
    const std::vector<MemoryBlock>& results = loop_->results();
    bool fits = memory.size() == results.size();
    std::vector<char*> starts;
    for (size_t i = 0; fits && i < memory.size(); ++i) {
      fits = memory[i].bytes == results[i].bytes * size_t(steps);
      starts.push_back(memory[i].data);
    }
    if (!fits) raise(Status::invalid("run: rows is not " + std::to_string(steps) + " times each result"));
    check(without_gil([&] { return loop_->run(starts, steps, std::chrono::duration<double>(seconds)); }));
    return loop_->is_over();
  }

 private:
  static bool are_alike(const std::vector<MemoryBlock>& a, const std::vector<MemoryBlock>& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [](const MemoryBlock& x, const MemoryBlock& y) { return x.bytes == y.bytes; });
  }

  Owners owners_;
  std::optional<StepLoop> loop_;
};

class RowLoopHolder {
 public:
  RowLoopHolder(nb::handle programs, nb::handle inputs, nb::handle given, nb::handle results, nb::handle kept,
                nb::handle count, nb::handle stop, nb::handle ended) {
    const int64_t steps = int_argument(count, {"RowLoop", "count"}, 1, std::numeric_limits<int32_t>::max());
    std::vector<StepRows> taken = rows_of(inputs, "inputs", given, "given", steps);
    std::vector<StepRows> left = rows_of(results, "results", kept, "kept", steps);
    std::optional<StopNumbers> numbers;
    if (!stop.is_none()) numbers = stop_numbers(stop, ended, left);
    loop_.emplace(programs_of(programs, "RowLoop", &owners_), std::move(taken), std::move(left), steps, std::move(numbers));
  }

  RowLoop& core() { return *loop_; }

  bool run(nb::handle limit, double seconds) {
    const int64_t steps = int_argument(limit, {"run", "limit"}, 0, std::numeric_limits<int64_t>::max());
    check(without_gil([&] { return loop_->run(steps, std::chrono::duration<double>(seconds)); }));
    return loop_->is_over();
  }

 private:
  std::vector<StepRows> rows_of(nb::handle fixed, const char* name, nb::handle rows, const char* rows_name, int64_t count) {
    const std::vector<MemoryBlock> blocks = memory_of(fixed, {"RowLoop", name}, true, &owners_);
    const std::vector<MemoryBlock> all = memory_of(rows, {"RowLoop", rows_name}, true, &owners_);
    bool fits = blocks.size() == all.size();
    std::vector<StepRows> found;
    for (size_t i = 0; fits && i < blocks.size(); ++i) {
      fits = all[i].bytes == blocks[i].bytes * size_t(count);
      found.push_back({blocks[i].data, blocks[i].bytes, all[i].data});
    }
    if (!fits) {
      raise(Status::invalid(std::string("RowLoop: ") + rows_name + " is not " + std::to_string(count) + " times each of " + name));
    }
    return found;
  }

  StopNumbers stop_numbers(nb::handle stop, nb::handle ended, const std::vector<StepRows>& kept) {
    const MemoryBlock flags = memory_of(nb::make_tuple(ended), {"RowLoop", "ended"}, true, &owners_)[0];
    if (kept.empty() || kept[0].bytes != flags.bytes * sizeof(int64_t)) {
      raise(Status::invalid("RowLoop: ended has not one bool for each int64 of the first result"));
    }
    return {ints_argument(stop, {"RowLoop", "stop"}, std::numeric_limits<int64_t>::min()), reinterpret_cast<bool*>(flags.data),
            flags.bytes};
  }

  Owners owners_;
  std::optional<RowLoop> loop_;
};

}  // namespace

void bind_step_loops(nb::module_& module) {
  nb::class_<StepLoopHolder>(module, "StepLoop",
                             "Runs programs of host in order, again and again, each time on the next of a few slots.\n\n"
                             "One thread fills slots: reserve(), write, push(), and end() after the last. Another one\n"
                             "takes steps: run(), until it returns True. They wait for each other without the GIL.")
      .def(nb::init<nb::handle, nb::handle, nb::handle, nb::handle>(), nb::arg("programs"), nb::arg("inputs"),
           nb::arg("slots"), nb::arg("results"),
           nb::sig("def __init__(self, programs: Sequence[Program], inputs: TensorList, slots: Sequence[TensorList], "
                   "results: TensorList) -> None"),
           "Make a loop.\n\n"
           "Args:\n"
           "    programs: Programs whose slots are bound, which nobody else uses meanwhile.\n"
           "    inputs: Tensors that they read; a step begins by copying a slot into them.\n"
           "    slots: The same number of tensors each, of the same types.\n"
           "    results: Contiguous tensors, whose contents are kept after each step.\n\n"
           "Raises:\n"
           "    InvalidArgumentError: They do not fit, or a program is not of host or not bound.")
      .def("reserve", [](StepLoopHolder& self) { return without_gil([&] { return self.core().reserve(); }); },
           nb::sig("def reserve(self) -> int"),
           "Wait until a slot is free and return its number: the next one in turn. -1 after close().")
      .def("push", [](StepLoopHolder& self) { self.core().push(); }, "Say that the slot of reserve() is full.")
      .def("end", [](StepLoopHolder& self) { self.core().end(); }, "Say that no more slots will be filled.")
      .def("close", [](StepLoopHolder& self) { self.core().close(); }, "Say that no more steps will be taken.")
      .def("run", &StepLoopHolder::run, nb::arg("rows"), nb::arg("limit"), nb::arg("seconds"),
           nb::sig("def run(self, rows: TensorList, limit: int, seconds: float) -> bool"),
           "Take steps, and return whether there will be no more: end() was called and no slot is full.\n\n"
           "A step that fails raises what Program.run() does. It is not counted, and its slot stays full.\n\n"
           "Args:\n"
           "    rows: For each result a contiguous tensor of `limit` times its size; the first step fills the first row.\n"
           "    limit: Of the number of steps.\n"
           "    seconds: It returns after the step at which they are over, waiting included.")
      .def_prop_ro("steps_taken", [](StepLoopHolder& self) { return self.core().steps_taken(); },
                   "By all calls of run().");
}

void bind_row_loops(nb::module_& module) {
  nb::class_<RowLoopHolder>(module, "RowLoop",
                            "Runs programs of host in order, again and again, over memory that they share.\n\n"
                            "What one step leaves there, the next one reads. One thread at a time.")
      .def(nb::init<nb::handle, nb::handle, nb::handle, nb::handle, nb::handle, nb::handle, nb::handle, nb::handle>(),
           nb::arg("programs"), nb::arg("inputs"), nb::arg("given"), nb::arg("results"), nb::arg("kept"), nb::arg("count"),
           nb::arg("stop") = nb::none(), nb::arg("ended") = nb::none(),
           nb::sig("def __init__(self, programs: Sequence[Program], inputs: TensorList, given: TensorList, "
                   "results: TensorList, kept: TensorList, count: int, stop: Sequence[int] | None = None, "
                   "ended: Any = None) -> None"),
           "Make a loop.\n\n"
           "Args:\n"
           "    programs: Programs whose slots are bound, which nobody else uses meanwhile.\n"
           "    inputs: Contiguous tensors that they read; a step begins by copying a row into each.\n"
           "    given: For each of them, contiguous, `count` times its size: a row for each step.\n"
           "    results: Contiguous tensors; a step ends by copying each to its row.\n"
           "    kept: For each of them, contiguous, `count` times its size.\n"
           "    count: The number of rows, and the most steps.\n"
           "    stop: Numbers. There are no more steps once each element of the first result, int64, has been one of\n"
           "        them after some step.\n"
           "    ended: Bool, an element for each of these: whether it has been, which steps write down.\n\n"
           "Raises:\n"
           "    InvalidArgumentError: They do not fit, or a program is not of host or not bound.")
      .def("run", &RowLoopHolder::run, nb::arg("limit"), nb::arg("seconds"),
           nb::sig("def run(self, limit: int, seconds: float) -> bool"),
           "Take steps after those that are taken, and return whether there will be no more.\n\n"
           "A step that fails raises what Program.run() does, and is not counted.\n\n"
           "Args:\n"
           "    limit: Of the number of steps of this call.\n"
           "    seconds: It returns after the step at which they are over.")
      .def_prop_ro("steps_taken", [](RowLoopHolder& self) { return self.core().steps_taken(); }, "By all calls of run().")
      .def_prop_ro("failed_program", [](RowLoopHolder& self) -> nb::object {
             const int number = self.core().failed_program();
             return number == RowLoop::kNone ? nb::none() : nb::object(nb::int_(number));
           }, nb::sig("def failed_program(self) -> int | None"),
           "The number of the program that failed, if the last run() did.");
}

}  // namespace npu::bindings
