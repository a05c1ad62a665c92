// See later_save.h.
#include "checkpoint/later_save.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "checkpoint/exchange.h"
#include "checkpoint/rank_file.h"
#include "shoal/error.h"

namespace shoal::checkpoint {

LaterSave::LaterSave(StateSource source, Group& world, Options options, const Room& room)
    : source_(std::move(source)),
      world_(world),
      options_(std::move(options)),
      begun_(begin_save(world, options_.save)) {
  act_together([&] {
    check_begun(begun_, options_.save);
    take_picture(room);
  });
  source_.read = {};
  is_taken_ = true;
}

LaterSave::~LaterSave() {
  try {
    take_published();
  } catch (const std::exception&) {  // why_lost_ has it
  }
  if (over_ || !path_.empty() || world_.rank() != 0) return;
  fmt::print(stderr,
             "[checkpoint save] the save of step {} was under way and is lost: {} What was saved before stays.\n",
             options_.save.step,
             why_lost_.empty() ? "wait for a save before its engine or its run ends (wait_saved)." : why_lost_);
}

void LaterSave::take_published() {
  if (!published_.valid()) return;
  try {
    path_ = published_.get();
  } catch (const std::exception& error) {
    why_lost_ = message_of(error);
    throw;
  }
}

void LaterSave::act_together(const std::function<void()>& part) {
  const std::string failure = failure_of(world_, kSaveSubject, part);
  if (failure.empty()) return;
  over_ = true;
  file_.reset();
  if (begun_.pending) begun_.pending->abandon();
  throw SaveError(is_taken_ ? fmt::format("step {}, behind training: {}", step(), failure) : failure);
}

void LaterSave::take_picture(const Room& room) {
  part_ = lay_out_rank_file(source_, options_.piece_numel);
  part_.file.name = rank_file_name(world_.rank());
  BehindFile::Options behind;
  behind.path = (std::filesystem::path(begun_.temporary) / part_.file.name).string();
  behind.nbytes = part_.file.nbytes;
  behind.before_write = options_.before_write;
  for (const Piece& piece : part_.pieces) behind.ranges.push_back({piece.offset, piece.nbytes()});
  if (part_.random.nbytes > 0) behind.ranges.push_back({part_.random.offset, part_.random.nbytes});
  const std::span<std::byte> window =
      room(part_.file.nbytes, BehindFile::least_window(behind.ranges, part_.file.nbytes));
  file_ = std::make_unique<BehindFile>(window, std::move(behind));
  std::vector<float> values;
  for (const Piece& piece : part_.pieces) {
    file_->put([&](std::byte* stored) { read_stored(source_, piece, values, stored); });
  }
  if (const std::vector<uint8_t>& random = source_.progress.random_state; !random.empty()) {
    file_->put([&](std::byte* stored) { std::memcpy(stored, random.data(), random.size()); });
  }
}

bool LaterSave::is_ready() const {
  if (!is_written_) return file_ == nullptr || file_->is_done();
  return !published_.valid() || published_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

bool LaterSave::wait_for(double seconds) const {
  if (!is_written_) return file_ == nullptr || file_->wait_for(seconds);
  return !published_.valid() ||
         published_.wait_for(std::chrono::duration<double>(seconds)) == std::future_status::ready;
}

double LaterSave::written_share() const {
  if (is_written_ || file_ == nullptr || part_.file.nbytes == 0) return 1;
  return static_cast<double>(file_->written_nbytes()) / static_cast<double>(part_.file.nbytes);
}

std::string LaterSave::written_part() {
  const std::vector<uint64_t>& digests = file_->wait();
  for (size_t piece = 0; piece < part_.pieces.size(); ++piece) part_.pieces[piece].digest = digests[piece];
  if (part_.random.nbytes > 0) part_.random.digest = digests.back();
  return write_rank_part(part_);
}

// A thread that cannot be started fails the save where its result is asked for, which all ranks do together.
void LaterSave::start_publish(std::vector<std::string> parts) {
  try {
    if (options_.before_publish) options_.before_publish();
    published_ = std::async(std::launch::async, [this, parts = std::move(parts)] {
      return publish_save(*begun_.pending, source_, options_.save, parts);
    });
  } catch (const std::system_error& error) {
    std::promise<std::string> failed;
    published_ = failed.get_future();
    failed.set_exception(std::make_exception_ptr(
        Error("checkpoint", fmt::format("cannot start a thread to publish it: {}. Raise the limit of threads (ulimit "
                                        "-u), or save and wait.",
                                        error.what()))));
  }
}

std::optional<std::string> LaterSave::go_on() {
  if (!is_written_) {
    std::string part;
    act_together([&] { part = written_part(); });
    std::vector<std::string> parts = gather_texts(world_, kSaveSubject, part);
    file_.reset();
    is_written_ = true;
    if (begun_.pending) start_publish(std::move(parts));
    return std::nullopt;
  }
  act_together([&] { take_published(); });
  std::string path = broadcast_text(world_, kSaveSubject, path_);
  over_ = true;
  return path;
}

}  // namespace shoal::checkpoint
