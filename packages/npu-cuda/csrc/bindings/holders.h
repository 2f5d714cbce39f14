// The Python classes Program and Graph: those of the core, with the references that keep their tensors alive.
#pragma once

#include <map>
#include <set>

#include "bindings/arguments.h"
#include "bindings/launch_record.h"
#include "bindings/tensors.h"
#include "core/graph.h"
#include "core/in_use.h"
#include "core/program.h"

namespace npu::bindings {

// Below this many bytes work on the host is over before another thread could have taken the GIL and given it back.
inline constexpr int64_t kBytesWorthTheGil = 256 * 1024;

// Notes a use, which the GIL guards, until the end of a block: by the generation of the process, as `InUse` does.
class Busy {
 public:
  explicit Busy(uint32_t& user) : user_(user) { user_ = generation_of_process; }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;
  ~Busy() { user_ = 0; }

 private:
  uint32_t& user_;
};
inline bool is_in_use(uint32_t user) { return user == generation_of_process; }

// Destroys programs and graphs. Those of cuda without the GIL: to free memory waits for work that may need
// it.
struct DropUnlocked {
  void operator()(Program* program) const;
  void operator()(Graph* graph) const;
};

class ProgramHolder {
 public:
  ProgramHolder(Device* device, SelectionRules rules) : program_(new Program(device, rules)) {}
  // A program that is final and bound; `owners` keep its tensors.
  ProgramHolder(std::unique_ptr<Program> program, Owners owners, const DLPackExchangeAPI* stream_source)
      : program_(program.release()), owners_{{0, std::move(owners)}}, stream_source_(stream_source) {
    record_.add(owners_[0], stream_source_, *program_->device());
  }
  ProgramHolder(ProgramHolder&&) = default;
  ~ProgramHolder() { clear(); }

  // InvalidArgumentError while finalize() plans it without the GIL, and after the garbage collector has taken it apart,
  // for finalizers that still see it.
  Program& core() const;
  void finalize(nb::handle allocator);
  void bind(int slot, nb::handle tensor, ArgName name);
  void run(nb::handle stream_handle, const char* function = "run");
  // Binds a slot for good: call() does not.
  void fix(int slot, nb::handle tensor);
  // Binds the other external slots in order and runs. Without `keep` it lets the tensors go, as a call of an op does.
  void call(nb::handle tensors, nb::handle stream_handle, bool keep);
  // call() on the CPU into what `makers` make, without `keep`. None, and nothing is computed, where a tensor is not one
  // of PyTorch that is exactly what its slot says. `places`: of each slot, among the inputs, then what was made.
  nb::object compute(nb::handle inputs, nb::handle makers, nb::handle places);
  // InvalidArgumentError where a slot has the memory of a tensor that call() has let go.
  void require_kept(const char* function);
  Owners owners() const;
  const DLPackExchangeAPI* stream_source() const { return stream_source_; }
  const LaunchRecord& record() const { return record_; }

  int traverse(visitproc visit, void* arg) const;
  void clear();

 private:
  // InvalidArgumentError while call() binds and runs: reading tensors lets other threads in between.
  void require_free(const char* function) const;
  // With `let_go` the program does not keep the tensor: what keeps it goes there, and has to outlive the run.
  void bind_slot(int slot, nb::handle tensor, ArgName name, Owners* let_go);
  // What call() has to know of a final program, found once.
  struct CallPlan {
    std::vector<int> external;  // slots
    bool is_complete = false;   // the program is final: nothing is added any more
    bool is_short = false;      // a run is over before another thread could have taken the GIL and given it back
  };
  const CallPlan& call_plan();
  // Binds the external slots.
  void bind_all(nb::handle tensors, bool keep, Owners* let_go);
  // `let_go`: tensors that it uses, and that are not among its owners any more.
  void launch(nb::handle stream_handle, const char* function, const Owners& let_go);
  bool is_bound_to(int slot, nb::handle tensor, const TensorDesc& desc) const;

  std::unique_ptr<Program, DropUnlocked> program_;
  std::map<int, Owners> owners_;  // of bound slots; the tensor comes first
  bool has_let_go_ = false;       // some bound slots may have no owners any more
  std::set<int> fixed_;           // slots that call() does not bind
  CallPlan call_plan_;
  const DLPackExchangeAPI* stream_source_ = nullptr;
  LaunchRecord record_;
  uint32_t planner_ = 0, caller_ = 0;  // the users of finalize() and call()
};

class GraphHolder {
 public:
  GraphHolder(std::unique_ptr<Graph> graph, Owners owners, const DLPackExchangeAPI* stream_source,
              LaunchRecord record)
      : graph_(graph.release()),
        owners_(std::move(owners)),
        stream_source_(stream_source),
        record_(std::move(record)) {}
  GraphHolder(GraphHolder&&) = default;
  ~GraphHolder() { clear(); }

  Graph& core() const;
  void launch(int64_t count, nb::handle stream_handle);
  void update(ProgramHolder& program);

  int traverse(visitproc visit, void* arg) const;
  void clear();

 private:
  std::unique_ptr<Graph, DropUnlocked> graph_;
  Owners owners_;
  const DLPackExchangeAPI* stream_source_;
  LaunchRecord record_;
};

// The stream that was given, or the current one.
void* stream_or_current(nb::handle stream_handle, const char* function, const DLPackExchangeAPI* source,
                        const Device& device);

CaptureMode mode_argument(nb::handle mode, const char* function);
Topology topology_argument(nb::handle topology, const char* function);

// In an emulated build the memory of the CPU is that of cuda, too.
void adapt(TensorDesc* desc, const Device& device);

// Whether a capture begun by graph_begin() records on this stream. Cheap if there is none.
bool is_captured(void* stream);
// The graph will keep the owners; `source` reports the current stream of the producer of the tensors, or is null.
void keep_for_capture(void* stream, const Owners& owners, const DLPackExchangeAPI* source);

template <class Holder>
int traverse_holder(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  return nb::inst_ready(self) ? nb::inst_ptr<Holder>(self)->traverse(visit, arg) : 0;
}

template <class Holder>
int clear_holder(PyObject* self) {
  if (nb::inst_ready(self)) nb::inst_ptr<Holder>(self)->clear();
  return 0;
}

template <class Holder>
PyType_Slot* collected() {
  static PyType_Slot slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(traverse_holder<Holder>)},
                                {Py_tp_clear, reinterpret_cast<void*>(clear_holder<Holder>)},
                                {0, nullptr}};
  return slots;
}

}  // namespace npu::bindings
