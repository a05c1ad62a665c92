// The config that many write for ZeRO-3 with everything on the host; it runs unchanged.
#pragma once

namespace shoal::testing {

inline constexpr const char* kConfigPeopleWrite = R"({
  "train_batch_size": 256,
  "gradient_accumulation_steps": 16,
  "gradient_clipping": 1.0,
  "fp16": {"enabled": true, "loss_scale": 0, "initial_scale_power": 16},
  "zero_optimization": {
    "stage": 3,
    "offload_optimizer": {"device": "cpu", "pin_memory": true},
    "offload_param": {"device": "cpu", "pin_memory": true},
    "overlap_comm": true, "contiguous_gradients": true, "reduce_bucket_size": 5e8,
    "stage3_prefetch_bucket_size": 5e8, "stage3_param_persistence_threshold": 1e6
  }
})";

}  // namespace shoal::testing
