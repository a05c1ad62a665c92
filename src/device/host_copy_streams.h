// CopyStreams within host memory: a copy is through when its call returns. For a queue whose memory is the host's.
#pragma once

#include <memory>

#include "device/copy_streams.h"

namespace shoal {

std::unique_ptr<CopyStreams> make_host_copy_streams();

}  // namespace shoal
