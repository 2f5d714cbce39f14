// KernelRegistry: the ops and their kernels, in descending priority. Readers take a snapshot, which never
// changes: no lock is held while kernels are asked or launched. Writers replace the snapshot, all of what
// they add or nothing; the old one goes when nobody reads it any more.
#pragma once

#include <atomic>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "core/op_info.h"
#include "core/reader_epochs.h"

namespace npu {

struct RegisteredOp {
  std::shared_ptr<const OpInfo> info;
  std::vector<KernelPtr> host_kernels, cuda_kernels;  // descending priority, then id

  std::vector<KernelPtr>& kernels(DeviceType device) { return device == DeviceType::Host ? host_kernels : cuda_kernels; }
  const std::vector<KernelPtr>& kernels(DeviceType device) const {
    return device == DeviceType::Host ? host_kernels : cuda_kernels;
  }
};

struct RegistrySnapshot {
  uint64_t version = 0;  // each has another
  std::vector<RegisteredOp> ops;  // in the order of their kinds
  std::unordered_map<std::string, KernelPtr> kernel_by_id;

  const RegisteredOp* find(OpKind kind) const;
  const OpInfo* find_op(OpKind kind) const;
  const OpInfo* find_op(const std::string& name) const;
  const std::vector<KernelPtr>& kernels_of(OpKind kind, DeviceType device) const;  // empty where there are none
  KernelPtr find_kernel(const std::string& id) const;                              // null if there is none
};

// The registry as it is when a thread begins to read it; cheap, and may be nested. An OpInfo outlives it: ops
// are never removed.
class RegistryReader {
 public:
  RegistryReader();
  RegistryReader(const RegistryReader&) = delete;
  RegistryReader& operator=(const RegistryReader&) = delete;
  ~RegistryReader();
  const RegistrySnapshot* operator->() const { return snapshot_; }

 private:
  ReaderEpoch& epoch_;
  const RegistrySnapshot* snapshot_;
};

class KernelRegistry {
 public:
  // The registry of the process, with the ops and kernels of this build.
  static KernelRegistry& instance();

  // A number for an op of a library; each is given once.
  static OpKind new_kind();

  // Adds ops and kernels. InvalidArgument, and nothing is added, where a name, kind, schema id or kernel id is empty
  // or taken, or a kernel is of an op that is not there.
  Status add(std::vector<OpInfo> ops, const std::vector<KernelPtr>& kernels);
  // Removes a kernel; programs that selected it keep it. InvalidArgument if there is none of this id.
  Status remove(const std::string& kernel_id);

 private:
  friend class RegistryReader;
  using SnapshotPtr = std::unique_ptr<const RegistrySnapshot>;
  struct Replaced {
    SnapshotPtr snapshot;
    uint64_t epoch;  // readers that began in it, or before, may have the snapshot
  };
  KernelRegistry() : newest_(std::make_unique<const RegistrySnapshot>()), current_(newest_.get()) {}
  void publish(RegistrySnapshot next);
  // Destroys what nobody reads any more, without the lock: a kernel may be in Python.
  void collect();

  std::mutex writing_;
  SnapshotPtr newest_;
  std::vector<Replaced> replaced_;
  std::atomic<bool> has_replaced_{false};
  std::atomic<const RegistrySnapshot*> current_;
};

}  // namespace npu
