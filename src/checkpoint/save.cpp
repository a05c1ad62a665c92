// See save.h and shoal/checkpoint.h. Rank 0 makes a temporary folder, every rank writes its file there, rank 0 checks
// that they are there, writes the manifest and renames. After each of these parts the ranks agree whether to go on.
#include "checkpoint/save.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "checkpoint/exchange.h"
#include "checkpoint/rank_file.h"
#include "checkpoint/run_folder.h"
#include "plan/from_config.h"
#include "shoal/error.h"

namespace shoal {

namespace checkpoint {

namespace {

const Subject kSubject{"save", "checkpoint"};

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

std::string save_state(const StateSource& source, Group& world, const SaveOptions& options) {
  const bool leads = world.rank() == 0;
  std::unique_ptr<PendingCheckpoint> pending;
  const auto write_together = [&](const std::function<void()>& part) {
    const std::string failure = failure_of(world, kSubject, part);
    if (failure.empty()) return;
    if (pending) pending->abandon();
    throw SaveError(failure);
  };
  write_together([&] {
    if (options.folder.empty()) throw Error("checkpoint", "no folder was given. Set SaveOptions::folder.");
    if (options.step < 0) throw Error("checkpoint", fmt::format("{} is no step. Use 0 or more.", options.step));
    if (leads) pending = std::make_unique<PendingCheckpoint>(options.folder, options.step);
  });
  const std::string leading_step = broadcast_text(world, kSubject, std::to_string(options.step));
  const std::string temporary = broadcast_text(world, kSubject, leads ? pending->temporary_path() : "");

  std::string part;
  write_together([&] {
    if (leading_step != std::to_string(options.step)) {
      throw Error("checkpoint", fmt::format("it saves step {}, rank 0 saves step {}. Save the same on every rank.",
                                            options.step, leading_step));
    }
    std::error_code error;
    if (!std::filesystem::is_directory(temporary, error)) {
      throw Error("checkpoint", fmt::format("{}, which rank 0 made, is not seen here. Save to a disk that all hosts "
                                            "share.",
                                            temporary));
    }
    const std::filesystem::path file = std::filesystem::path(temporary) / rank_file_name(world.rank());
    part = write_rank_part(write_rank_file(file.string(), source));
  });
  const std::vector<std::string> parts = gather_texts(world, kSubject, part);

  std::string path;
  write_together([&] {
    if (!leads) return;
    const Manifest manifest = manifest_of(source, options, parts);
    check_files_arrived(manifest, temporary);
    const std::string text = write_manifest(manifest);
    parse_manifest(text, "checkpoint");  // it can be read back, and covers everything
    path = pending->publish(text);
    const std::string kept = remove_old(options.folder, options.step, options.keep_last);
    if (!kept.empty()) fmt::print(stderr, "[checkpoint] cannot remove old checkpoints: {}\n", kept);
  });
  return broadcast_text(world, kSubject, path);
}

}  // namespace checkpoint

std::string save_checkpoint(const Engine& engine, Group& world, const SaveOptions& options) {
  checkpoint::StateSource source;
  source.params = engine.state().params();
  source.runs = engine.state().owned();
  source.read = [&engine](const StateRun& part, float* values) { engine.state().read(part, values); };
  source.progress = engine.state().progress();
  source.config = engine.config().to_json();
  source.kept = {moment_dtype(engine.config()), has_narrow_masters(engine.config())};
  SaveOptions saving = options;
  saving.extra.erase(std::string(checkpoint::kAccumulated));  // of the checkpoint that the run was taken up from
  if (const int64_t accumulated = engine.state().accumulated(); accumulated > 0) {
    saving.extra[std::string(checkpoint::kAccumulated)] = std::to_string(accumulated);
    if (world.rank() == 0) {
      fmt::print(
          stderr,
          "[checkpoint save] {} micro-steps are accumulated: the checkpoint is of the last step and does not hold "
          "them. They stay in memory, and training goes on with them.\n",
          accumulated);
    }
  }
  return checkpoint::save_state(source, world, saving);
}

}  // namespace shoal
