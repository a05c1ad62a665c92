// See stored_pieces.h.
#include "checkpoint/stored_pieces.h"

#include <unordered_map>
#include <utility>

namespace shoal {

PiecedTensors in_pieces(const std::vector<SafeTensor>& tensors, const FillValues& fill, const StoredPieces& pieces) {
  struct Part {
    std::string of;
    int64_t begin = 0;
  };
  PiecedTensors made;
  std::unordered_map<std::string, Part> parts;
  for (const SafeTensor& tensor : tensors) {
    const auto found = pieces.find(tensor.name);
    if (found == pieces.end()) {
      made.tensors.push_back(tensor);
      continue;
    }
    for (const StoredPiece& piece : found->second) {
      made.tensors.push_back({piece.name, tensor.dtype, piece.shape});
      parts.emplace(piece.name, Part{tensor.name, piece.begin});
    }
  }
  made.fill = [fill, parts = std::move(parts)](const std::string& name, int64_t begin, int64_t numel, float* out) {
    const auto part = parts.find(name);
    if (part == parts.end()) return fill(name, begin, numel, out);
    fill(part->second.of, part->second.begin + begin, numel, out);
  };
  return made;
}

}  // namespace shoal
