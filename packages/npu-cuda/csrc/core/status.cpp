#include "core/status.h"

namespace npu {

Status::Status(StatusCode code, std::string message)
    : failure_(code == StatusCode::Ok ? nullptr : new Failure{code, std::move(message)}) {}

const std::string& Status::message() const {
  static const std::string empty;
  return ok() ? empty : failure_->message;
}

void Status::prefix(const std::string& place) { failure_->message = place + ": " + failure_->message; }

const char* name_of(StatusCode code) {
  switch (code) {
    case StatusCode::Ok: return "Ok";
    case StatusCode::InvalidArgument: return "InvalidArgument";
    case StatusCode::NotImplemented: return "NotImplemented";
    case StatusCode::Internal: return "Internal";
    case StatusCode::DeviceError: return "DeviceError";
    case StatusCode::Unavailable: return "Unavailable";
  }
  return "unknown";
}

}  // namespace npu
