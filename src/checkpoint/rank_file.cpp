// See rank_file.h.
#include "checkpoint/rank_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/digest.h"
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

RankPart lay_out_rank_file(const StateSource& source, int64_t piece_numel) {
  RankPart part;
  const auto append = [&](int64_t nbytes) {
    const int64_t offset = align_up(part.file.nbytes);
    part.file.nbytes = offset + nbytes;
    return offset;
  };
  for (const StateRun& run : source.runs) {
    for (int64_t at = 0; at < run.numel; at += piece_numel) {
      Piece piece;
      piece.param = run.param;
      piece.kind = run.kind;
      piece.begin = run.begin + at;
      piece.numel = std::min(piece_numel, run.numel - at);
      piece.dtype = stored_dtype(source.params[static_cast<size_t>(run.param)], run.kind, source.kept);
      piece.offset = append(piece.nbytes());
      part.pieces.push_back(piece);
    }
  }
  if (const auto nbytes = static_cast<int64_t>(source.progress.random_state.size()); nbytes > 0) {
    part.random.nbytes = nbytes;
    part.random.offset = append(nbytes);
  }
  return part;
}

void read_stored(const StateSource& source, const Piece& piece, std::vector<float>& values, void* stored) {
  const StateRun run = {piece.param, piece.kind, piece.begin, piece.numel};
  if (piece.dtype == DType::f32) {
    source.read(run, static_cast<float*>(stored));
    return;
  }
  values.resize(static_cast<size_t>(piece.numel));
  source.read(run, values.data());
  kernels::convert(values.data(), DType::f32, stored, piece.dtype, piece.numel);
}

RankPart write_rank_file(const std::string& path, const StateSource& source, int64_t piece_numel) {
  RankPart part = lay_out_rank_file(source, piece_numel);
  part.file.name = std::filesystem::path(path).filename().string();
  DurableFile file = DurableFile::create(path);
  std::vector<float> values;
  std::vector<uint8_t> stored;
  for (Piece& piece : part.pieces) {
    stored.resize(static_cast<size_t>(piece.nbytes()));
    read_stored(source, piece, values, stored.data());
    piece.digest = digest_of(stored.data(), stored.size());
    file.write_at(piece.offset, stored.data(), stored.size());
  }
  if (const std::vector<uint8_t>& random = source.progress.random_state; !random.empty()) {
    part.random.digest = digest_of(random.data(), random.size());
    file.write_at(part.random.offset, random.data(), random.size());
  }
  file.sync();
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
