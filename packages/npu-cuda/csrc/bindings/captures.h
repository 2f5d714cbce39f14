// Captures of single calls that Python has begun: a graph of them needs the tensors of all its calls.
#pragma once

#include "bindings/holders.h"

namespace npu::bindings {

// Whether a capture that graph_begin() has begun records on this stream. Cheap where there is none.
bool is_captured(void* stream);
// The graph will keep the owners; `source` says what stream is current for who made the tensors, null if nobody does.
void keep_for_capture(void* stream, const Owners& owners, const DLPackExchangeAPI* source);

}  // namespace npu::bindings
