// Wires within host memory: a copy is through when its call returns. For a queue whose memory is the host's.
#pragma once

#include <memory>

#include "device/wires.h"

namespace shoal {

std::unique_ptr<Wires> make_host_wires();

}  // namespace shoal
