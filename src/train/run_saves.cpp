// See run_saves.h.
#include "train/run_saves.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/text.h"
#include "shoal/error.h"

namespace shoal::train {

namespace {

constexpr double kProgressSeconds = 10;  // between lines while a save is waited for
constexpr double kToldMs = 100;          // publishing alone takes less

class SaveWatch {
 public:
  double ms() const { return std::chrono::duration<double, std::milli>(Clock::now() - begin_).count(); }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point begin_ = Clock::now();
};

}  // namespace

double RunSaves::take_held_up_ms() { return std::exchange(held_up_ms_, 0); }

// Anything else than a SaveError, a dead rank say, ends the run.
void RunSaves::tell_failure(const SaveError& error, int64_t step, double ms) {
  last_failed_ = true;
  if (options_.on_save_error == OnSaveError::stop) throw error;
  progress_.say(fmt::format("{} The run goes on (--on-save-error continue).", error.what()));
  happened_.add("save failed", step, {{"ms", ms}, {"why", first_line(error.what())}});
}

void RunSaves::begin(const SaveOptions& options) {
  const SaveWatch watch;
  if (options_.save_and_wait) {
    save_now(options);
  } else {
    begin_behind(options);
  }
  held_up_ms_ += watch.ms();
}

void RunSaves::save(const SaveOptions& options) {
  wait();
  save_now(options);
}

void RunSaves::save_now(const SaveOptions& options) {
  last_step_ = options.step;
  const SaveWatch watch;
  try {
    const std::string path = save_checkpoint(engine_, world_, options);
    progress_.say(fmt::format("saved      {} in {:.0f} ms", path, watch.ms()));
    happened_.flush_ranks();
    happened_.add("save", options.step, {{"ms", watch.ms()}, {"path", path}});
    last_failed_ = false;
  } catch (const SaveError& error) {
    tell_failure(error, options.step, watch.ms());
  }
}

void RunSaves::begin_behind(const SaveOptions& options) {
  if (saver_.under_way()) {
    const SaveWatch watch;
    const int64_t before = behind_step_;
    finish();
    if (watch.ms() >= kToldMs) {
      progress_.say(fmt::format("training waited {:.0f} ms for the save of step {}, to save step {}", watch.ms(),
                                before, options.step));
    }
  }
  last_step_ = behind_step_ = options.step;
  const SaveWatch watch;
  try {
    saver_.save_later(options);
  } catch (const SaveError& error) {
    tell_failure(error, options.step, watch.ms());
    return;
  }
  happened_.flush_ranks();
  behind_held_up_ms_ = watch.ms();
  if (!std::exchange(said_memory_, true)) say_memory();
}

// One rank with less than it saves holds all of them up.
void RunSaves::say_memory() {
  const std::array<uint64_t, 2> own = {saver_.picture_nbytes(), saver_.state_nbytes()};
  std::vector<std::array<uint64_t, 2>> all(static_cast<size_t>(world_.size()));
  world_.all_gather({{"save", "checkpoint"}, own.data(), all.data(), sizeof(own), {}}).wait();
  const auto share = [](const auto& rank) {
    return rank[1] == 0 ? 1.0 : static_cast<double>(rank[0]) / static_cast<double>(rank[1]);
  };
  const auto least = std::ranges::min_element(all, {}, share);
  const auto& [picture, state] = *least;
  if (picture >= state) return;
  progress_.say(
      fmt::format("a save has {} of memory for {} on rank {} (shoal.save_memory): training waits while the rest "
                  "is written",
                  format_nbytes(picture), format_nbytes(state), least - all.begin()));
}

void RunSaves::see(bool all_ready) {
  if (!saver_.under_way() || !all_ready) return;
  const SaveWatch watch;
  advance();
  held_up_ms_ += watch.ms();
}

void RunSaves::advance() {
  const SaveWatch watch;
  try {
    saver_.go_on();
  } catch (const SaveError& error) {
    tell_failure(error, behind_step_, behind_held_up_ms_ + watch.ms());
    return;
  }
  behind_held_up_ms_ += watch.ms();
  if (saver_.under_way()) return;
  const SavedCheckpoint& saved = *saver_.last();
  progress_.say(fmt::format("saved      {} behind training in {:.0f} ms, held it up for {:.0f} ms", saved.path,
                            saved.seconds * 1e3, behind_held_up_ms_));
  happened_.add("save", saved.step,
                {{"ms", behind_held_up_ms_}, {"behind_ms", saved.seconds * 1e3}, {"path", saved.path}});
  last_failed_ = false;
}

void RunSaves::finish() {
  while (saver_.under_way()) {
    const SaveWatch watch;
    while (!saver_.wait_ready(kProgressSeconds)) {
      progress_.say(fmt::format("the save of step {} is {:.0f} % written", behind_step_, 100 * saver_.written_share()));
    }
    behind_held_up_ms_ += watch.ms();
    advance();
  }
}

void RunSaves::wait() {
  if (!saver_.under_way()) return;
  const SaveWatch watch;
  if (!saver_.is_ready()) progress_.say(fmt::format("waits for the save of step {}", behind_step_));
  finish();
  held_up_ms_ += watch.ms();
}

}  // namespace shoal::train
