// Forms of DeepSpeed's config that say with one key what another says: deprecated names, and settings that DeepSpeed
// passes over beside others. They are read as those others, and each gives a notice under the name that the user wrote.
#pragma once

#include <string>
#include <vector>

#include "config/problems.h"
#include "config/settings.h"

namespace shoal::config {

//   written                                 | read as
//   zero_optimization: true, false          | zero_optimization.stage 1, 0
//   cpu_offload, cpu_offload_param: true    | offload_optimizer.device, offload_param.device "cpu"
//   offload_param.device below stage 3      | "none"
//   prescale_gradients, a predivide factor
//     beside gradient_allreduce_op "sum"    | not there: a sum is divided by nothing
//   a predivide factor
//     beside prescale_gradients             | not there: all is divided before the sum
// After "auto" is resolved, before the rules.
std::vector<std::string> settle_forms(Settings& settings, Problems& problems);

}  // namespace shoal::config
