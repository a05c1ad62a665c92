// See save.h and shoal/checkpoint.h. Rank 0 makes a temporary folder, every rank writes its file there, rank 0 checks
// that they are there, writes the manifest and renames. After each of these parts the ranks agree whether to go on.
#include "checkpoint/save.h"

#include <filesystem>

#include "checkpoint/engine_source.h"
#include "checkpoint/exchange.h"
#include "checkpoint/rank_file.h"
#include "checkpoint/save_parts.h"

namespace shoal {

namespace checkpoint {

std::string save_state(const StateSource& source, Group& world, const SaveOptions& options) {
  BegunSave begun = begin_save(world, options);
  const auto act_together = [&](const std::function<void()>& part) {
    const std::string failure = failure_of(world, kSaveSubject, part);
    if (failure.empty()) return;
    if (begun.pending) begun.pending->abandon();
    throw SaveError(failure);
  };
  std::string part;
  act_together([&] {
    check_begun(begun, options);
    const std::filesystem::path file = std::filesystem::path(begun.temporary) / rank_file_name(world.rank());
    part = write_rank_part(write_rank_file(file.string(), source));
  });
  const std::vector<std::string> parts = gather_texts(world, kSaveSubject, part);
  std::string path;
  act_together([&] {
    if (begun.pending) path = publish_save(*begun.pending, source, options, parts);
  });
  return broadcast_text(world, kSaveSubject, path);
}

}  // namespace checkpoint

std::string save_checkpoint(const Engine& engine, Group& world, const SaveOptions& options) {
  return checkpoint::save_state(checkpoint::source_of(engine, options), world,
                                checkpoint::with_what_is_left_out(engine, world, options));
}

}  // namespace shoal
