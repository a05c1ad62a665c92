// From a checkpoint to a folder that Hugging Face's transformers loads: the weights as safetensors, and config.json.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "checkpoint/safetensors.h"
#include "checkpoint/stored_pieces.h"

namespace shoal::checkpoint {

struct Exported {
  int64_t tensors = 0;
  int64_t numel = 0;
  bool has_config = false;  // config.json was written: the checkpoint knows its model (extra "model_config")
};

// Throws Error where the folder holds safetensors. What a killed export left is none; the new one's end removes it.
void refuse_weights_in(const std::string& folder);

// A model's config.json, with the dtype that the weights have now. Where it can, in the text as it is: written anew, a
// number such as 50.0 would be 50, which transformers refuses for some keys.
std::string config_in(const std::string& model_config, DType dtype);

// Reads in a stream: memory is a few pieces, whatever the size of the model. A parameter with several names goes out
// under its first, as transformers does it with tied weights. Refuses a folder that holds weights already,
// and a checkpoint without the frozen ones.
// `pieces_of`: which parameters go out in pieces, told from the model's config.json.
using PiecesOfModel = std::function<StoredPieces(const std::string& model_config)>;
Exported export_safetensors(const std::string& checkpoint_path, const std::string& folder,
                            const SafetensorsWriteOptions& options = {}, const PiecesOfModel& pieces_of = {});

}  // namespace shoal::checkpoint
