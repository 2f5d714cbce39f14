// Conversion of the tensors of a caller: torch tensors, NumPy arrays, our own, and anything else with __dlpack__.
// Nothing is copied. Errors name the argument: "op_call: inputs[1]: ...".
#pragma once

#include "bindings/arguments.h"
#include "bindings/producers.h"
#include "core/call_memo.h"
#include "core/device.h"
#include "core/op_info.h"

namespace npu::bindings {

enum class Role { Input, Output };
enum class Hold { ForTheCall, Longer };

// What the core calls the dtype, shape and place of a DLPack tensor. InvalidArgument where it has no words for it.
Status describe(const DLTensor& tensor, TensorDesc* out);
// Where describe() makes of a tensor what is known of another one, the address aside, does the same; else false.
bool describe_as(const TensorDesc& known, const DLTensor& tensor, TensorDesc* out);
// Whether a tensor with memory is what is known of another one, address and alignment aside.
bool is_like(const TensorDesc& known, const DLTensor& tensor);
// Sets numel, strides where they are not given (null), flags and alignment from data, shape and strides.
Status complete(TensorDesc* tensor, const int64_t* strides);

// The tensors of a call, and references that keep their memory.
class TensorArguments {
 public:
  TensorArguments(const char* function, void* stream, Hold hold = Hold::ForTheCall)
      : function_(function), stream_(stream), hold_(hold) {}
  TensorArguments(const TensorArguments&) = delete;
  TensorArguments& operator=(const TensorArguments&) = delete;
  ~TensorArguments();

  // Tensors like those of the last call of this kind are described as there.
  void expect(const CallMemo& memo) {
    memo_ = &memo;
    changes_ = memo.changes;
  }
  // Whether all were like them.
  bool are_expected() const {
    return memo_ && changes_ == memo_->changes && count_ == memo_->num_inputs + memo_->num_outputs;
  }

  // Adds all of a list or tuple.
  int add_all(nb::handle list, const char* name, Role role);
  void add(nb::handle tensor, ArgName name, Role role);

  int count() const { return count_; }
  const TensorDesc* descs() const { return descs_; }  // until the next one is added
  TensorDesc* descs() { return descs_; }
  // The stream of the call: that of the caller, or the current one of who made the tensors, or the default one.
  void* stream() const;
  const DLPackExchangeAPI* stream_source() const { return stream_source_; }
  bool has_own_tensors() const { return has_own_tensors_; }
  // Notes in the memory of our own tensors that launches on a stream use it.
  void note_use(void* stream) const;
  // Hands over what keeps the memory.
  void give_owners(std::vector<nb::object>* to);

 private:
  void read(nb::handle tensor, const Producer& producer, ArgName name, Role role);
  void read_exchange(nb::handle tensor, const Producer& producer, ArgName name, Role role);
  void read_protocol(nb::handle tensor, const Producer& producer, ArgName name, Role role);
  bool take_expected(const DLTensor& tensor);
  void compare(const TensorDesc& desc);
  // What was exported as the next tensor; refused where it cannot have this role.
  void take(const ExportedTensor& exported, ArgName name, Role role);
  void own(PyObject* object) { owners_[num_owners_++] = object; }  // steals
  void make_room(size_t count);

  static constexpr size_t kFew = 16;
  static constexpr size_t kMostOwners = 3;  // of a tensor
  const char* function_;
  void* stream_;
  Hold hold_;
  int count_ = 0;
  int num_owners_ = 0;
  uint32_t changes_ = 0;
  const CallMemo* memo_ = nullptr;  // as long as the tensors so far are like its
  bool has_own_tensors_ = false;
  const DLPackExchangeAPI* stream_source_ = nullptr;  // of the first tensor on cuda that has one
  size_t room_ = kFew;
  PyObject** owners_ = few_owners_;
  TensorDesc* descs_ = few_descs_;
  PyObject* few_owners_[kMostOwners * kFew];
  TensorDesc few_descs_[kFew];
  std::vector<PyObject*> many_owners_;
  std::vector<TensorDesc> many_descs_;
};

// The stream that is current for those who made a tensor on this device. Null of cuda becomes cudaStreamLegacy.
void* current_stream(const DLPackExchangeAPI* source, int32_t device_type, int32_t device_id);

// The address of a tensor of PyTorch with memory, which is as described, alignment included, and that the caller knows to
// have no lazy change. Null, without an error, for anything else.
void* address_as(const TensorDesc& known, nb::handle tensor);

struct TensorSpec {
  TensorDesc desc;  // no data; on the host until somebody says otherwise
};

// "float32", "bfloat16", ...: as core's name_of gives them. InvalidArgument lists what there is.
DType dtype_argument(nb::handle name, const char* function);

// dtype, shape and strides (None: contiguous) as a description without memory.
TensorDesc desc_argument(nb::handle dtype, nb::handle shape, nb::handle strides, const char* function);

// The spec as a tensor of this device.
TensorDesc on_device(const TensorSpec& spec, DeviceType type, int id);

// A tuple of ints.
nb::tuple tuple_of(const int64_t* numbers, int count);

}  // namespace npu::bindings
