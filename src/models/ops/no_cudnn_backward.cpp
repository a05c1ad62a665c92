// Stands in for cudnn_backward.cpp in a build without cuDNN's frontend.
#include "models/ops/cudnn_backward.h"

namespace shoal::models::ops {

bool has_cudnn_backward() { return false; }

std::optional<AttentionGrads> cudnn_backward(const AttentionBackward& of) { return std::nullopt; }

}  // namespace shoal::models::ops
