// Batch norms on the host, a few channels at a time, so that what one step reads or writes is still in the cache when
// the next one reads it.
#include "ops/reduce/batch_norm_steps.h"
#include "ops/reduce/host_kernels.h"
#include "ops/threads.h"

namespace npu::reduce {
namespace {

// Adds dy * (x - m) of each column; the attribute is how far dy is from x, in bytes.
template <class Lane>
struct Products {
  template <int kBytes>
  struct Columns {
    using Sums = Vectors<op::Sum, Lane, kBytes>;

    static NPU_INLINE void run(const Lane* x, int64_t stride, int64_t count, int64_t n, const Lane* m, const void* attrs,
                               Lane* states) {
      const auto distance = *static_cast<const ptrdiff_t*>(attrs);
      const auto* const dy = reinterpret_cast<const Lane*>(reinterpret_cast<const char*>(x) + distance);
      for (int64_t i = 0; i < n; i += Sums::kLanes) {
        const int64_t lanes = std::min<int64_t>(Sums::kLanes, n - i);
        const auto mean = Sums::load(m + i, lanes);
        auto sum = Sums::load(states + i, lanes);
        const auto add_rows = [&](auto... lanes_of_row) __attribute__((always_inline)) {
          for (int64_t at = i; at < i + count * stride; at += stride) {
            sum = fma(Sums::load(dy + at, lanes_of_row...), Sums::load(x + at, lanes_of_row...) - mean, sum);
          }
        };
        if (lanes == Sums::kLanes) add_rows();
        else add_rows(lanes);
        Sums::store(sum, states + i, lanes);
      }
    }
  };
};

template <Class type>
struct HostSteps {
  using Number = pointwise::NumberOf<type>;
  template <class Fn>
  static Status reduce(const OpCall& call) { return launch<Fn, type>(call); }
  template <class Fn>
  static Status reduce_around(const TensorDesc& m, const OpCall& call) {
    return launch_given<Fn, type>(call, static_cast<const Number*>(m.data));
  }
  // Channels are columns of numbers that are read where they are.
  static bool sums_products(const TensorDesc& x, const TensorDesc& mean) {
    return item_bytes(x.dtype) == sizeof(Number) && geometry_of(x, mean, axes_of_channel(x)).has_columns();
  }
  static Status sum_products(const TensorDesc& dy, const TensorDesc& m, const OpCall& call) {
    static const HostOp<Number> op = [] {
      HostOp<Number> made = host_op_of<op::Sum, Number>();
      made.second.columns = widest<Number, Products<Number>::template Columns>();
      return made;
    }();
    const TensorDesc& x = call.inputs[0];
    const ptrdiff_t distance = static_cast<const char*>(dy.data) - static_cast<const char*>(x.data);
    const Geometry geometry = geometry_of(x, call.outputs[0], axes_of_channel(x));
    run_on_host(call, geometry, op, &distance, static_cast<const Number*>(m.data));
    return {};
  }
  template <class Fn>
  static Status pointwise(const OpCall& call) { return npu::pointwise::launch<Fn, type>(call); }
  template <class Fn>
  static uint64_t reduction_bytes(const OpCall&) { return 0; }
};

// Channels of which an image has so many bytes.
int64_t channels_of_slice(const TensorDesc& x) {
  constexpr int64_t most_bytes = 256 << 10;
  const int64_t channels = x.shape[1];
  if (x.strides[1] == 1) return channels;  // they share lines of the cache
  return std::clamp<int64_t>(most_bytes * channels / nbytes(x), 1, channels);
}

// Some channels of the tensors of a call: of images, and of vectors with a number for each.
class Slice {
 public:
  Slice(const OpCall& call, int64_t begin, int64_t count) : call_(call) {
    for (int i = 0; i < call.num_inputs; ++i) inputs_[i] = channels_of(call.inputs[i], begin, count);
    for (int i = 0; i < call.num_outputs; ++i) outputs_[i] = channels_of(call.outputs[i], begin, count);
    call_.inputs = inputs_;
    call_.outputs = outputs_;
  }
  Slice(const Slice&) = delete;
  Slice& operator=(const Slice&) = delete;

  OpCall& call() { return call_; }

 private:
  static TensorDesc channels_of(TensorDesc tensor, int64_t begin, int64_t count) {
    const int axis = tensor.rank == 1 ? 0 : 1;
    if (tensor.shape[axis] == count) return tensor;
    tensor.data = static_cast<char*>(tensor.data) + begin * tensor.strides[axis] * item_bytes(tensor.dtype);
    tensor.numel = tensor.numel / tensor.shape[axis] * count;
    tensor.shape[axis] = count;
    tensor.flags &= ~uint32_t{NPU_TENSOR_CONTIGUOUS};
    return tensor;
  }

  OpCall call_;
  TensorDesc inputs_[6], outputs_[4];
};

template <class Steps>
uint64_t bytes_of_slice(const OpCall& call) {
  return bwd_bytes<Steps>(Slice(call, 0, channels_of_slice(call.inputs[1])).call());
}

// Each thread has memory for one slice.
template <class Steps>
uint64_t bytes_of_slices(const OpCall& call) {
  const TensorDesc& x = call.inputs[1];
  const int64_t slice = channels_of_slice(x), slices = (x.shape[1] + slice - 1) / slice;
  return bytes_of_slice<Steps>(call) * static_cast<uint64_t>(std::min<int64_t>(slices, thread_count()));
}

// `image`: the input that is x; `bytes`: of a workspace that each slice needs, or 0.
template <class Launch>
Status launch_slices(const OpCall& call, int image, uint64_t bytes, Launch launch) {
  const int64_t channels = call.inputs[image].shape[1], size = channels_of_slice(call.inputs[image]);
  const int64_t slices = (channels + size - 1) / size;
  const int64_t workers =
      bytes == 0 ? slices : std::clamp(static_cast<int64_t>(call.workspace_bytes / bytes), int64_t{1}, slices);
  const int64_t share = (slices + workers - 1) / workers;
  parallel_items(workers, 1, [&](int64_t begin, int64_t end) {
    for (int64_t slice = begin * share; slice < std::min(slices, end * share); ++slice) {
      Slice part(call, slice * size, std::min(size, channels - slice * size));
      part.call().workspace = static_cast<char*>(call.workspace) + slice / share * static_cast<int64_t>(bytes);
      static_cast<void>(launch(part.call()));  // what `supported` took cannot fail
    }
  });
  return {};
}

template <class Steps>
Status launch_fwd(const OpCall& call) { return launch_slices(call, 0, 0, launch_batch_norm_fwd<Steps>); }

template <class Steps>
Status launch_bwd(const OpCall& call) {
  return launch_slices(call, 1, bytes_of_slice<Steps>(call), launch_batch_norm_bwd<Steps>);
}

template <Class type>
void add_batch_norms(std::vector<KernelPtr>* kernels) {
  const std::string suffix = std::string(".") + pointwise::class_name(type) + ".host";
  const auto fwd = [](const OpCall& call) { return check_batch_norm_fwd(type, call); };
  const auto bwd = [](const OpCall& call) { return check_batch_norm_bwd(type, call); };
  using Steps = HostSteps<type>;
  kernels->push_back(make_kernel({OpKind::BatchNormFwd, "batch_norm_fwd" + suffix, DeviceType::Host, 5},
                                 {fwd, launch_fwd<Steps>}));
  kernels->push_back(make_kernel({OpKind::BatchNormBwd, "batch_norm_bwd" + suffix, DeviceType::Host, 5},
                                 {bwd, launch_bwd<Steps>, nullptr, bytes_of_slices<Steps>}));
}

}  // namespace

std::vector<KernelPtr> batch_norm_host_kernels() {
  std::vector<KernelPtr> kernels;
  add_batch_norms<kFloat32>(&kernels);
  add_batch_norms<kFloat64>(&kernels);
  return kernels;
}

}  // namespace npu::reduce
