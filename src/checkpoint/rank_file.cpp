// See rank_file.h.
#include "checkpoint/rank_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "checkpoint/digest.h"
#include "kernels/convert.h"
#include "shoal/error.h"

namespace shoal::checkpoint {

namespace {

int64_t align_up(int64_t offset) { return (offset + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

std::string rank_file_name(int rank) { return fmt::format("rank-{:05}.bin", rank); }

DType stored_dtype(const ParamInfo& param, StateKind kind, const KeptDTypes& kept) {
  if (kind != StateKind::weight) return kept.moments;
  return param.trainable && !kept.narrow_masters ? DType::f32 : param.dtype;
}

RankPart write_rank_file(const std::string& path, const StateSource& source, int64_t piece_numel) {
  RankPart part;
  part.file.name = std::filesystem::path(path).filename().string();
  DurableFile file = DurableFile::create(path);
  int64_t end = 0;
  const auto append = [&](const void* data, int64_t nbytes) {
    const int64_t offset = align_up(end);
    file.write_at(offset, data, static_cast<size_t>(nbytes));
    end = offset + nbytes;
    return offset;
  };

  std::vector<float> values;
  std::vector<uint8_t> stored;
  for (const StateRun& run : source.runs) {
    for (int64_t at = 0; at < run.numel; at += piece_numel) {
      Piece piece;
      piece.param = run.param;
      piece.kind = run.kind;
      piece.begin = run.begin + at;
      piece.numel = std::min(piece_numel, run.numel - at);
      piece.dtype = stored_dtype(source.params[run.param], run.kind, source.kept);
      values.resize(static_cast<size_t>(piece.numel));
      source.read({run.param, run.kind, piece.begin, piece.numel}, values.data());
      const void* bytes = values.data();
      if (piece.dtype != DType::f32) {
        stored.resize(static_cast<size_t>(piece.nbytes()));
        kernels::convert(values.data(), DType::f32, stored.data(), piece.dtype, piece.numel);
        bytes = stored.data();
      }
      piece.digest = digest_of(bytes, static_cast<size_t>(piece.nbytes()));
      piece.offset = append(bytes, piece.nbytes());
      part.pieces.push_back(piece);
    }
  }
  if (const std::vector<uint8_t>& random = source.progress.random_state; !random.empty()) {
    part.random.nbytes = static_cast<int64_t>(random.size());
    part.random.digest = digest_of(random.data(), random.size());
    part.random.offset = append(random.data(), part.random.nbytes);
  }
  file.sync();
  part.file.nbytes = end;
  return part;
}

std::vector<uint8_t> read_checked(const DurableFile& file, int64_t offset, int64_t nbytes, uint64_t digest,
                                  const std::string& what) {
  std::vector<uint8_t> bytes(static_cast<size_t>(nbytes));
  file.read_at(offset, bytes.data(), bytes.size());
  if (digest_of(bytes.data(), bytes.size()) != digest) {
    throw Error("checkpoint", fmt::format("{}: {} (bytes {} to {}) is damaged: its checksum differs. Use another "
                                          "checkpoint, or a copy of this file.",
                                          file.path(), what, offset, offset + nbytes - 1));
  }
  return bytes;
}

std::vector<float> read_piece(const DurableFile& file, const Manifest& manifest, const Piece& piece) {
  const std::vector<uint8_t> bytes =
      read_checked(file, piece.offset, piece.nbytes(), piece.digest, manifest.describe(piece));
  std::vector<float> values(static_cast<size_t>(piece.numel));
  kernels::convert(bytes.data(), piece.dtype, values.data(), DType::f32, piece.numel);
  return values;
}

}  // namespace shoal::checkpoint
