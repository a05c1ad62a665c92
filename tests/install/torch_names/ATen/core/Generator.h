// See Tensor.h.
#pragma once

namespace at {

class Generator {};

}  // namespace at
