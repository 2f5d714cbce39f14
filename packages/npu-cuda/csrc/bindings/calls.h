// Calls of single ops, from Python arguments.
#pragma once

#include "bindings/arguments.h"

namespace npu::bindings {

// As op_call() takes them; those after the outputs are null where they are not given.
struct CallArguments {
  nb::handle inputs, outputs, schema_id, attrs_bytes, stream_handle;
};

void call_op(nb::handle kind, const CallArguments& given);

}  // namespace npu::bindings
