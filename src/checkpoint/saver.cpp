// CheckpointSaver of shoal/checkpoint.h: the engine, the memory of the picture, and one LaterSave at a time.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <utility>
#include <vector>

#include "checkpoint/engine_source.h"
#include "checkpoint/later_save.h"
#include "checkpoint/save_memory.h"
#include "engine/room.h"
#include "plan/memory.h"
#include "plan/save_memory.h"
#include "shoal/checkpoint.h"

namespace shoal {

using checkpoint::LaterSave;
using Clock = std::chrono::steady_clock;

class CheckpointSaver::Impl {
 public:
  Impl(const Engine& engine, Group& world) : engine_(engine), world_(world) {}

  void save_later(const SaveOptions& options) {
    if (save_ && !save_->is_written() && world_.rank() == 0) {
      fmt::print(stderr, "[checkpoint save] the save of step {} is still under way: training waits for it.\n",
                 save_->step());
    }
    wait();
    LaterSave::Options later;
    later.save = checkpoint::with_what_is_left_out(engine_, world_, options);
    begun_ = Clock::now();
    save_ = std::make_unique<LaterSave>(checkpoint::source_of(engine_, options), world_, std::move(later),
                                        [this](int64_t nbytes, int64_t least) { return room(nbytes, least); });
  }

  void go_on() {
    if (!save_) return;
    std::optional<std::string> path;
    try {
      path = save_->go_on();
    } catch (...) {
      save_.reset();
      throw;
    }
    if (!path) return;
    last_ = {*path, save_->step(), std::chrono::duration<double>(Clock::now() - begun_).count()};
    save_.reset();
  }

  bool poll() {
    if (!save_) return true;
    const uint8_t ready = save_->is_ready() ? 1 : 0;
    std::vector<uint8_t> all(static_cast<size_t>(world_.size()));
    world_.all_gather({checkpoint::kSaveSubject, &ready, all.data(), sizeof(ready), {}}).wait();
    if (!std::all_of(all.begin(), all.end(), [](uint8_t each) { return each != 0; })) return false;
    try {
      go_on();
    } catch (const SaveError& error) {
      failure_ = error;
      if (world_.rank() == 0) fmt::print(stderr, "{}\n", error.what());
    }
    return !save_;
  }

  void wait() {
    if (failure_) {
      const SaveError error = *failure_;
      failure_.reset();
      throw error;
    }
    while (save_) go_on();
  }

  const Engine& engine_;
  Group& world_;
  checkpoint::PictureMemory memory_;
  size_t state_nbytes_ = 0;
  std::unique_ptr<LaterSave> save_;  // under way; its threads use the memory
  Clock::time_point begun_;
  std::optional<SavedCheckpoint> last_;
  std::optional<SaveError> failure_;  // that a poll found

 private:
  std::span<std::byte> room(int64_t nbytes, int64_t least) {
    const int64_t asked = engine_.config().shoal.save_memory;
    const size_t wanted =
        checkpoint::needed_memory({.state = nbytes, .least = least, .asked = asked, .held = memory_.nbytes},
                                  [&] { return unasked_picture(share()); });
    if (wanted != memory_.nbytes) {
      memory_ = {};  // before the new one
      memory_ = checkpoint::take_memory(wanted, asked > 0 ? wanted : in_pages(static_cast<size_t>(least)),
                                        [&](size_t size) { return engine_.state().picture_memory(size); });
    }
    state_nbytes_ = static_cast<size_t>(nbytes);
    return {memory_.data.get(), memory_.nbytes};
  }

  HostShare share() const {
    HostShare share;
    share.free = free_for_rank(world_.size());
    if (const int64_t budget = engine_.config().shoal.host_budget; budget > 0) {
      share.budget = static_cast<size_t>(budget) / static_cast<size_t>(local_ranks(world_.size()));
    }
    const MemoryReport memory = engine_.meters().memory();
    share.held = memory.held.host_total() - memory.held.save_pictures + memory.host_activations;
    if (!engine_.device().is_cuda()) share.held += memory.held.total();  // in the same memory
    return share;
  }
};

CheckpointSaver::CheckpointSaver(const Engine& engine, Group& world) : impl_(std::make_unique<Impl>(engine, world)) {}
CheckpointSaver::~CheckpointSaver() = default;

void CheckpointSaver::save_later(const SaveOptions& options) { impl_->save_later(options); }
bool CheckpointSaver::poll_saved() { return impl_->poll(); }

std::optional<SavedCheckpoint> CheckpointSaver::wait_saved() {
  impl_->wait();
  return impl_->last_;
}

bool CheckpointSaver::under_way() const { return impl_->save_ != nullptr; }
bool CheckpointSaver::is_ready() const { return !impl_->save_ || impl_->save_->is_ready(); }
void CheckpointSaver::go_on() { impl_->go_on(); }
bool CheckpointSaver::wait_ready(double seconds) const { return !impl_->save_ || impl_->save_->wait_for(seconds); }
const std::optional<SavedCheckpoint>& CheckpointSaver::last() const { return impl_->last_; }
double CheckpointSaver::written_share() const { return impl_->save_ ? impl_->save_->written_share() : 1; }
size_t CheckpointSaver::state_nbytes() const { return impl_->state_nbytes_; }
size_t CheckpointSaver::picture_nbytes() const { return impl_->memory_.nbytes; }

}  // namespace shoal
