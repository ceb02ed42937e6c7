#pragma once

#include "ops/ops.h"
#include "tensor/tensor.h"

namespace minisgl {

/// One step as the model sees it: views of device memory, valid during the call.
struct ForwardBatch {
  Tensor input_ids;          ///< [tokens] int32
  Tensor positions;          ///< [tokens] int32
  Tensor slots;              ///< [tokens] int32, KV slot each token writes
  AttentionBatch attention;  ///< rows and what they attend to
};

}  // namespace minisgl
