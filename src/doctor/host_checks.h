// Checks of the host: processor, memory, limits, io_uring.
#pragma once

#include <vector>

#include "doctor/findings.h"

namespace shoal::doctor {

std::vector<Finding> check_host();

// Each from what the system said, apart from asking it.
Finding judge_locked_memory(uint64_t limit_nbytes, uint64_t total_nbytes, bool unlimited);
Finding judge_shared_memory(uint64_t nbytes, uint64_t total_nbytes);
Finding judge_io_uring(int error_number);

}  // namespace shoal::doctor
