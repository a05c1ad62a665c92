// See state_reader.h.
#include "checkpoint/state_reader.h"

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "base/check.h"
#include "checkpoint/file_lengths.h"
#include "checkpoint/rank_file.h"
#include "checkpoint/run_folder.h"

namespace shoal::checkpoint {

StateReader::StateReader(const std::string& path) : path_(path), manifest_(read_manifest(path)) {
  check_lengths(path, manifest_);
  for (size_t i = 0; i < manifest_.pieces.size(); ++i) {
    const Piece& piece = manifest_.pieces[i];
    index_[{piece.param, piece.kind}][piece.begin] = i;
  }
  files_.resize(manifest_.files.size());
}

const Piece& StateReader::piece_at(int param, StateKind kind, int64_t element) const {
  const auto pieces = index_.find({param, kind});
  SHOAL_CHECK(pieces != index_.end(), "{} of parameter {} is not stored", name_of(kind), param);
  const auto after = pieces->second.upper_bound(element);
  SHOAL_CHECK(after != pieces->second.begin(), "element {} of parameter {}", element, param);
  const Piece& piece = manifest_.pieces[std::prev(after)->second];
  SHOAL_CHECK_LT(element, piece.begin + piece.numel);
  return piece;
}

void StateReader::read(int param, StateKind kind, int64_t begin, int64_t numel, float* values) {
  while (numel > 0) {
    const Piece& piece = piece_at(param, kind, begin);
    if (held_ != &piece) {
      held_ = nullptr;
      auto& file = files_[piece.file];
      if (!file) {
        const std::string& name = manifest_.files[piece.file].name;
        file = std::make_unique<DurableFile>(DurableFile::open_read((std::filesystem::path(path_) / name).string()));
      }
      values_ = read_piece(*file, manifest_, piece);
      held_ = &piece;
    }
    const int64_t count = std::min(numel, piece.begin + piece.numel - begin);
    std::memcpy(values, values_.data() + (begin - piece.begin), static_cast<size_t>(count) * sizeof(float));
    values += count, begin += count, numel -= count;
  }
}

}  // namespace shoal::checkpoint
