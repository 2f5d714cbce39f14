// Status: the result of every function of the core that can fail. One pointer wide; null on success.
#pragma once

#include <memory>
#include <string>
#include <type_traits>

#include "npu_cuda/kernel.h"

namespace npu {

enum class StatusCode : int32_t {
  Ok = NPU_OK,
  InvalidArgument = NPU_INVALID_ARGUMENT,
  NotImplemented = NPU_NOT_IMPLEMENTED,
  Internal = NPU_INTERNAL,
  DeviceError = NPU_DEVICE_ERROR,
  Unavailable = NPU_UNAVAILABLE,
};

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message);

  static Status invalid(std::string message) { return {StatusCode::InvalidArgument, std::move(message)}; }
  static Status not_implemented(std::string message) { return {StatusCode::NotImplemented, std::move(message)}; }
  static Status internal(std::string message) { return {StatusCode::Internal, std::move(message)}; }
  static Status device_error(std::string message) { return {StatusCode::DeviceError, std::move(message)}; }
  static Status unavailable(std::string message) { return {StatusCode::Unavailable, std::move(message)}; }

  bool ok() const { return failure_ == nullptr; }
  StatusCode code() const { return ok() ? StatusCode::Ok : failure_->code; }
  const std::string& message() const;

  // The same failure, saying where it happened: "op 3 (EltwiseRelu): ...". Ok stays ok. The place is text, or, where
  // calls must not pay for text that is not read, a function that returns it.
  template <class Place>
  Status at(const Place& place) && {
    if (ok()) return {};
    if constexpr (std::is_invocable_v<Place>) {
      prefix(place());
    } else {
      prefix(place);
    }
    return std::move(*this);
  }

 private:
  void prefix(const std::string& place);

  struct Failure {
    StatusCode code;
    std::string message;
  };
  std::unique_ptr<Failure> failure_;
};

// The name of a code, as Python shows it: "InvalidArgument".
const char* name_of(StatusCode code);

}  // namespace npu

// Returns from the function that it is in, if the status is not ok.
#define NPU_TRY(expression)                             \
  do {                                                  \
    if (::npu::Status status_ = (expression); !status_.ok()) return status_; \
  } while (false)
