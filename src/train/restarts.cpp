// See restarts.h.
#include "train/restarts.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <filesystem>
#include <system_error>
#include <utility>

#include "checkpoint/resolve.h"
#include "shoal/checkpoint.h"
#include "shoal/error.h"
#include "train/metrics_file.h"
#include "train/prepare.h"
#include "train/run_events.h"

namespace shoal::train {

namespace {

namespace fs = std::filesystem;

// Another text after each save: the file `latest` is a new one then, also where it names the same step.
std::string mark_of_latest(const std::string& checkpoints) {
  struct stat file {};
  if (::stat((fs::path(checkpoints) / "latest").c_str(), &file) != 0) return "";
  return fmt::format("{} {}.{:09}", file.st_ino, file.st_mtim.tv_sec, file.st_mtim.tv_nsec);
}

// As other ranks do it: a full disk costs a line of the history, not the run.
void add_event(const std::string& out, const std::string& line) {
  try {
    MetricsFile(out + "/events.jsonl", MetricsFile::kEveryStep).append(line);
  } catch (const Error&) {
  }
}

}  // namespace

Restarts::Restarts(RestartOptions options)
    : options_(std::move(options)),
      rule_(options_.restarts),
      latest_before_(mark_of_latest(checkpoints_of(options_.out))) {}

std::string Restarts::newest_checkpoint() const {
  const std::string folder = checkpoints_of(options_.out);
  if (mark_of_latest(folder) == latest_before_) return options_.first_checkpoint;
  return find_latest_checkpoint(folder);
}

std::optional<std::vector<std::string>> Restarts::after(const launch::LaunchOutcome& outcome) {
  const launch::RankEnd& cause = *outcome.cause();
  const int64_t step = last_step_in(options_.out + "/metrics.jsonl");
  const std::string refusal = rule_.refusal(cause, step);
  if (!refusal.empty()) {
    fmt::print(stderr, "shoal: {}\n", refusal);
    return std::nullopt;
  }
  const std::string checkpoint = newest_checkpoint();
  const std::string why = fmt::format("rank {} ended with {}", cause.rank, launch::how_it_ended(cause));
  fmt::print(stderr, "shoal: {} after step {}. The ranks are started again from {}: restart {} of {}.\n", why, step,
             checkpoint.empty() ? "the beginning, since no checkpoint is complete" : checkpoint, rule_.used(),
             rule_.restarts());
  EventFacts facts = {{"why", why}, {"restart", rule_.used()}, {"restarts", rule_.restarts()}};
  if (!checkpoint.empty()) facts.emplace_back("checkpoint", checkpoint);
  add_event(options_.out, event_line("restart", step, facts));
  std::vector<std::string> command = options_.command;
  command.insert(command.end(), {kRestartedFrom, checkpoint.empty() ? kBeginning : checkpoint});
  return command;
}

std::string restart_point(const TrainOptions& options) {
  const std::string own = checkpoints_of(options.out);
  if (options.resume.empty() || options.resume == "auto") return find_latest_checkpoint(own);
  const std::string first = checkpoint::resolve_checkpoint(options.resume, "--resume");
  std::error_code ignored;
  if (fs::equivalent(fs::path(first).parent_path(), own, ignored)) return first;
  const std::string latest = find_latest_checkpoint(own);
  return latest.empty() ? first : latest;
}

}  // namespace shoal::train
