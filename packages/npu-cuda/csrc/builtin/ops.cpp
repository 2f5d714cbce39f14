#include "core/builtin.h"
#include "ops/attention/attention.h"
#include "ops/conv/conv.h"
#include "ops/copy/copy.h"
#include "ops/fused/fused.h"
#include "ops/gemm/epilogue.h"
#include "ops/gemm/packed.h"
#include "ops/index/index.h"
#include "ops/lists/list_reductions.h"
#include "ops/lists/lists.h"
#include "ops/pointwise/pointwise.h"
#include "ops/pointwise/random.h"
#include "ops/pool/pool.h"
#include "ops/quantized/quantized.h"
#include "ops/recurrent/recurrent.h"
#include "ops/reduce/arg.h"
#include "ops/reduce/batch_norm.h"
#include "ops/reduce/cumsum.h"
#include "ops/reduce/reduce.h"
#include "ops/rotary/rotary.h"
#include "ops/rows/nll.h"
#include "ops/rows/rows.h"

namespace npu {

std::vector<OpInfo> builtin_ops() {
  return joined<OpInfo>({
      pointwise::infos(), pointwise::random_infos(), lists::infos(), lists::reduction_infos(), reduce::infos(),
      rows::infos(), rows::nll_infos(), indexing::infos(), conv::infos(), attention::infos(), pool::infos(), packed_gemm_infos(),
      quantized::infos(), recurrent::infos(), rotary::infos(), {gemm_info(), gemm_epilogue_info(), copy_info(), fused_info()},
  });
}

std::vector<KernelPtr> builtin_kernels() {
  return joined<KernelPtr>({
      pointwise::host_kernels(), pointwise::random_host_kernels(), fused_host_kernels(), lists::host_kernels(),
      lists::reduction_host_kernels(), reduce::host_kernels(), reduce::arg_host_kernels(),
      reduce::cumsum_host_kernels(), reduce::batch_norm_host_kernels(), rows::host_kernels(),
      rows::nll_host_kernels(), indexing::host_kernels(), gemm_host_kernels(), gemm_epilogue_host_kernels(),
      packed_gemm_host_kernels(), conv::host_kernels(), attention::host_kernels(), pool::host_kernels(),
      quantized::host_kernels(), quantized::dynamic_host_kernels(), recurrent::host_kernels(), rotary::host_kernels(),
      copy_host_kernels(),
#ifdef NPU_WITH_CUDA
      pointwise::cuda_kernels(), pointwise::random_cuda_kernels(), fused_cuda_kernels(), lists::cuda_kernels(),
      lists::reduction_cuda_kernels(), reduce::cuda_kernels(), reduce::arg_cuda_kernels(),
      reduce::cumsum_cuda_kernels(), reduce::batch_norm_cuda_kernels(), rows::cuda_kernels(),
      rows::nll_cuda_kernels(), indexing::cuda_kernels(), pool::cuda_kernels(), gemm_cuda_kernels(),
      gemm_epilogue_cuda_kernels(), quantized::cuda_kernels(), rotary::cuda_kernels(), copy_cuda_kernels(),
#endif
  });
}

}  // namespace npu
