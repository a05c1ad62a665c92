// One save whose files are written behind training. Made, it has a picture of the state; then threads write each rank's
// file, the ranks exchange what they wrote, and a thread of rank 0 publishes it. Only the thread that trains talks to
// other ranks: it comes by between steps, on all ranks alike, and takes the save one part further. CheckpointSaver
// (shoal/checkpoint.h) has the engine and the memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/behind_file.h"
#include "checkpoint/manifest.h"
#include "checkpoint/save_parts.h"
#include "checkpoint/state_ends.h"

namespace shoal::checkpoint {

class LaterSave {
 public:
  // Memory for the picture, by what it takes whole and what it takes at least; begins at a multiple of kDirectAlignment
  // and has such a number of bytes.
  using Room = std::function<std::span<std::byte>(int64_t nbytes, int64_t least)>;

  struct Options {
    SaveOptions save;
    int64_t piece_numel = kPieceNumel;
    std::function<void(int64_t offset)> before_write = {};  // for tests: see BehindFile
    std::function<void()> before_publish = {};              // for tests: on the thread that comes by, may throw
  };

  // Every rank makes one, between passes. Returns when the picture is taken: what the room does not hold is written by
  // then. Throws SaveError on every rank if any could not begin. The source is not read later; the room outlives this.
  LaterSave(StateSource source, Group& world, Options options, const Room& room);
  // Communicates nothing. A save that is not complete is none; rank 0 says so.
  ~LaterSave();
  LaterSave(const LaterSave&) = delete;
  LaterSave& operator=(const LaterSave&) = delete;

  int64_t step() const { return options_.save.step; }
  bool is_written() const { return is_written_; }  // by all ranks, as they know: what is left takes a moment
  // go_on() would not wait for this rank's disk.
  bool is_ready() const;
  // Waits until it is so, for so many seconds at most. True: it is.
  bool wait_for(double seconds) const;
  double written_share() const;
  // Every rank, until it returns the path: takes the save one part further. Throws SaveError on every rank if it failed
  // on one; it is over then, and nothing is left of it.
  std::optional<std::string> go_on();

 private:
  void act_together(const std::function<void()>& part);
  void take_picture(const Room& room);
  std::string written_part();
  void start_publish(std::vector<std::string> parts);
  void take_published();

  StateSource source_;  // what the manifest says of it; no values
  Group& world_;
  Options options_;
  BegunSave begun_;
  RankPart part_;
  std::unique_ptr<BehindFile> file_;    // until all have written
  std::future<std::string> published_;  // by rank 0, then
  std::string path_;                    // of rank 0: it is complete, whatever becomes of the talk about it
  std::string why_lost_;
  bool is_taken_ = false, is_written_ = false, over_ = false;
};

}  // namespace shoal::checkpoint
