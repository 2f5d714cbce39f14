#include "ops/fused/payload.h"

namespace npu::fusion {
namespace {

class Words {
 public:
  explicit Words(const AttrBlob& attrs) : next_(static_cast<const char*>(attrs.data)), end_(next_ + attrs.bytes) {}

  size_t left() const { return size_t(end_ - next_) / sizeof(uint32_t); }
  bool are_over() const { return next_ == end_; }
  uint32_t take() {
    uint32_t word;
    std::memcpy(&word, next_, sizeof(word));
    next_ += sizeof(word);
    return word;
  }
  const char* skip(size_t words) {
    const char* here = next_;
    next_ += words * sizeof(uint32_t);
    return here;
  }

 private:
  const char* next_;
  const char* end_;
};

Status ends_early() { return Status::invalid("attributes: the list of steps ends too early"); }

Status read_step(size_t tensors, Words* words, Step* step) {
  if (words->left() < 5) return ends_early();
  step->kind = static_cast<OpKind>(words->take());
  const uint32_t inputs = words->take(), outputs = words->take(), schema = words->take(), bytes = words->take();
  const uint64_t attr_words = (uint64_t{bytes} + 3) / 4;
  if (uint64_t{inputs} + outputs + attr_words > words->left()) return ends_early();
  step->num_inputs = static_cast<int>(inputs);
  for (uint32_t i = 0; i < inputs + outputs; ++i) {
    step->tensors.push_back(words->take());
    if (step->tensors.back() < tensors) continue;
    return Status::invalid("attributes: a step uses tensor " + std::to_string(step->tensors.back()) + "; there are " +
                           std::to_string(tensors));
  }
  step->attrs = {schema, bytes, words->skip(attr_words)};
  return {};
}

}  // namespace

Status read_payload(const OpCall& call, Payload* payload) {
  Words words(call.attrs);
  if (words.left() < 2) return ends_early();
  const uint32_t temporaries = words.take(), steps = words.take();
  if (words.left() < uint64_t{temporaries} * 2) return ends_early();
  for (uint32_t i = 0; i < temporaries; ++i) {
    const auto code = static_cast<uint8_t>(words.take()), bits = static_cast<uint8_t>(words.take());
    payload->temporaries.push_back({code, bits, 1});
  }
  const size_t tensors = size_t(call.num_inputs) + size_t(call.num_outputs) + temporaries;
  for (uint32_t i = 0; i < steps; ++i) {
    Step step;
    NPU_TRY(read_step(tensors, &words, &step).at([&] { return "step " + std::to_string(i); }));
    payload->steps.push_back(std::move(step));
  }
  return words.are_over() ? Status() : Status::invalid("attributes: there is more than the steps");
}

}  // namespace npu::fusion
