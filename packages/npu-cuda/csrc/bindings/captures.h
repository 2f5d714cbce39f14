// Captures of single calls, begun from Python: their graph keeps the tensors of all its calls alive.
#pragma once

#include "bindings/holders.h"

namespace npu::bindings {

// Whether a capture begun by graph_begin() records on this stream. Cheap if there is none.
bool is_captured(void* stream);
// The graph will keep the owners; `source` reports the current stream of the producer of the tensors, or is null.
void keep_for_capture(void* stream, const Owners& owners, const DLPackExchangeAPI* source);

}  // namespace npu::bindings
