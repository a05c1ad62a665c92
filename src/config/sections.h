// The rows of the config table, one function a section file.
#pragma once

#include <vector>

#include "config/key.h"

namespace shoal::config {

std::vector<Section> top_level_sections();
std::vector<Section> fp16_sections();
std::vector<Section> bf16_sections();
std::vector<Section> fp8_sections();
std::vector<Section> data_types_sections();
std::vector<Section> zero_sections();
std::vector<Key> quantized_keys();  // of zero_optimization
Section loco_section();
std::vector<Section> offload_sections();
std::vector<Section> aio_sections();
std::vector<Section> activation_checkpointing_sections();
std::vector<Section> optimizer_sections();
std::vector<Section> scheduler_sections();
std::vector<Section> checkpoint_sections();
std::vector<Section> monitor_sections();
std::vector<Section> shoal_sections();
std::vector<Section> foreign_sections();  // sections that Shoal does not have

}  // namespace shoal::config
