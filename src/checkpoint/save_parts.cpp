// See save_parts.h.
#include "checkpoint/save_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "checkpoint/exchange.h"
#include "checkpoint/rank_file.h"
#include "shoal/error.h"

namespace shoal::checkpoint {

namespace {

Manifest manifest_of(const StateSource& source, const SaveOptions& options, const std::vector<std::string>& parts) {
  Manifest manifest;
  manifest.step = options.step;
  manifest.world = static_cast<int>(parts.size());
  manifest.weights_only = source.weights_only;
  manifest.progress = source.progress;
  manifest.extra = options.extra;
  manifest.config = source.config;
  for (const ParamInfo& param : source.params) {
    manifest.params.push_back(
        {param.name, param.aliases, param.shape, stored_dtype(param, StateKind::weight, source.kept), param.trainable});
  }
  for (const std::string& text : parts) {
    RankPart part = parse_rank_part(text);
    const int file = static_cast<int>(manifest.files.size());
    manifest.files.push_back(part.file);
    if (part.random.nbytes > 0) {
      part.random.rank = part.random.file = file;
      manifest.randoms.push_back(part.random);
    }
    for (Piece& piece : part.pieces) {
      piece.file = file;
      manifest.pieces.push_back(piece);
    }
  }
  for (const StateKind kind : {StateKind::weight, StateKind::first_moment, StateKind::second_moment}) {
    const auto is_of_kind = [kind](const Piece& piece) { return piece.kind == kind; };
    if (kind == StateKind::weight || std::any_of(manifest.pieces.begin(), manifest.pieces.end(), is_of_kind)) {
      manifest.states.push_back(kind);
    }
  }
  return manifest;
}

// Ranks on hosts without a shared disk write where rank 0 does not see it; that is no checkpoint.
void check_files_arrived(const Manifest& manifest, const std::string& folder) {
  for (const SavedFile& file : manifest.files) {
    const std::filesystem::path path = std::filesystem::path(folder) / file.name;
    std::error_code error;
    const auto nbytes = std::filesystem::file_size(path, error);
    if (error || static_cast<int64_t>(nbytes) != file.nbytes) {
      throw Error("checkpoint", fmt::format("{} was written by its rank and is not seen here. Save to a disk that all "
                                            "hosts share.",
                                            path.string()));
    }
  }
}

}  // namespace

BegunSave begin_save(Group& world, const SaveOptions& options) {
  const bool leads = world.rank() == 0;
  BegunSave begun;
  const std::string failure = failure_of(world, kSaveSubject, [&] {
    if (options.folder.empty()) throw Error("checkpoint", "no folder was given. Set SaveOptions::folder.");
    if (options.step < 0) throw Error("checkpoint", fmt::format("{} is no step. Use 0 or more.", options.step));
    if (leads) begun.pending = std::make_unique<PendingCheckpoint>(options.folder, options.step);
  });
  if (!failure.empty()) throw SaveError(failure);
  begun.leading_step = broadcast_text(world, kSaveSubject, std::to_string(options.step));
  begun.temporary = broadcast_text(world, kSaveSubject, leads ? begun.pending->temporary_path() : "");
  return begun;
}

void check_begun(const BegunSave& begun, const SaveOptions& options) {
  if (begun.leading_step != std::to_string(options.step)) {
    throw Error("checkpoint", fmt::format("it saves step {}, rank 0 saves step {}. Save the same on every rank.",
                                          options.step, begun.leading_step));
  }
  std::error_code error;
  if (!std::filesystem::is_directory(begun.temporary, error)) {
    throw Error("checkpoint", fmt::format("{}, which rank 0 made, is not seen here. Save to a disk that all hosts "
                                          "share.",
                                          begun.temporary));
  }
}

std::string publish_save(PendingCheckpoint& pending, const StateSource& source, const SaveOptions& options,
                         const std::vector<std::string>& parts) {
  const Manifest manifest = manifest_of(source, options, parts);
  check_files_arrived(manifest, pending.temporary_path());
  const std::string text = write_manifest(manifest);
  parse_manifest(text, "checkpoint");  // it can be read back, and covers everything
  const std::string path = pending.publish(text);
  const std::string kept = remove_old(options.folder, options.step, options.keep_last);
  if (!kept.empty()) fmt::print(stderr, "[checkpoint] cannot remove old checkpoints: {}\n", kept);
  return path;
}

}  // namespace shoal::checkpoint
