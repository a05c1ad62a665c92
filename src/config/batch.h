// The batch triple: train_batch_size = train_micro_batch_size_per_gpu * gradient_accumulation_steps * data ranks,
// which are all ranks unless some share their samples.
// Completes what is missing by DeepSpeed's table and checks that the numbers fit.
#pragma once

#include "config/problems.h"
#include "config/settings.h"

namespace shoal::config {

inline constexpr const char* kTrainBatch = "train_batch_size";
inline constexpr const char* kMicroBatch = "train_micro_batch_size_per_gpu";
inline constexpr const char* kAccumulation = "gradient_accumulation_steps";

//   given           | derived
//   all three       | nothing, only checked
//   batch, micro    | accumulation = batch / micro / ranks
//   batch, accum    | micro = batch / accum / ranks
//   micro, accum    | batch = micro * accum * ranks
//   batch           | accumulation = 1, micro = batch / ranks
//   micro           | accumulation = 1, batch = micro * ranks
//   accum, or none  | a mistake, unless the context knows the micro batch or one of the others is "auto": then 1
void derive_batch(Settings& settings, const ConfigContext& context, Problems& problems);

}  // namespace shoal::config
