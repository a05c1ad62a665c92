// Any range of any state of a saved checkpoint, without ranks: for export and tools. Holds one piece at a time, so that
// reading in order needs little memory and reads each piece once.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/durable_file.h"
#include "checkpoint/manifest.h"

namespace shoal::checkpoint {

class StateReader {
 public:
  // Throws when the checkpoint is not complete.
  explicit StateReader(const std::string& path);

  const Manifest& manifest() const { return manifest_; }
  // Elements [begin, begin + numel) of a stored state as fp32. Throws when a piece of them is damaged.
  void read(int param, StateKind kind, int64_t begin, int64_t numel, float* values);

 private:
  const Piece& piece_at(int param, StateKind kind, int64_t element) const;

  std::string path_;
  Manifest manifest_;
  // By parameter, state and begin: index of the piece.
  std::map<std::pair<int, StateKind>, std::map<int64_t, size_t>> index_;
  std::vector<std::unique_ptr<DurableFile>> files_;  // opened when needed
  const Piece* held_ = nullptr;                      // the piece whose values are in values_
  std::vector<float> values_;
};

}  // namespace shoal::checkpoint
