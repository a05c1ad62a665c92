// Parameters that safetensors files have in pieces, as those of mixtures of experts: a parameter of all experts
// together is a tensor for each expert there. models/ says which these are; exports write them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/safetensors.h"

namespace shoal {

struct StoredPiece {
  std::string name;  // in files
  std::vector<int64_t> shape;
  int64_t begin = 0;  // its first element's number in the parameter
};

// By the parameter's name. Those that are not in it are stored as they are.
using StoredPieces = std::map<std::string, std::vector<StoredPiece>>;

// What to write in place of whole parameters: their pieces, filled from them.
struct PiecedTensors {
  std::vector<SafeTensor> tensors;
  FillValues fill;
};
PiecedTensors in_pieces(const std::vector<SafeTensor>& tensors, const FillValues& fill, const StoredPieces& pieces);

}  // namespace shoal
