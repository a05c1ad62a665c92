// From a checkpoint of `shoal train --lora` to what others load: the adapters in PEFT's own format, or the base with
// the adapters added to its matrices, as a Hugging Face folder.
#pragma once

#include <string>

#include "checkpoint/export_safetensors.h"
#include "models/lora_base.h"

namespace shoal::models {

struct LoraExport {
  std::string checkpoint;    // the folder of one
  std::string folder;        // where to
  std::string base = {};     // where the base is now; "": where it was
  DType dtype = DType::f32;  // of what is written
};

// The base of the checkpoint, or nothing where it is of a run without LoRA.
std::optional<LoraBase> lora_of_checkpoint(const std::string& checkpoint_path);

// adapter_model.safetensors, by PEFT's names, and adapter_config.json. Throws Error for a checkpoint without adapters.
checkpoint::Exported export_adapter(const LoraExport& what);
// Each matrix as W + alpha / r * B A, summed in fp32 and rounded once; what has no adapter, to the bit. Throws Error
// for a checkpoint without adapters, and for a base that they were not trained on.
checkpoint::Exported export_merged(const LoraExport& what);

}  // namespace shoal::models
