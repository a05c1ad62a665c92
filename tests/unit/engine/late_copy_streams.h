// CopyStreams within host memory that copy as late as they may: when the queue, or the test's thread, is held for a
// copy. And an allocator for tensors whose memory is spoiled when it is given back. Together they show a copy whose
// memory was not kept, or for which nobody waited.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "device/copy_streams.h"

namespace shoal::testing {

class LateCopyStreams final : public CopyStreams {
 public:
  using Log = std::vector<std::string>;
  explicit LateCopyStreams(std::shared_ptr<Log> log) : log_(std::move(log)) {}

  void make_room(int) override {}
  std::string pin(std::byte*, size_t) override { return ""; }
  void follow_queue() override { say("follow"); }
  void mark_queue() override {}
  void follow_mark() override {}
  void copy_in(int chunk, std::byte* to, const std::byte* from, size_t nbytes, int after) override {
    in_.push_back({chunk, to, from, nbytes, after});
    say("in", chunk);
  }
  void copy_out(int chunk, std::byte* to, const std::byte* from, size_t nbytes) override {
    out_.push_back({chunk, to, from, nbytes, -1});
    say("out", chunk);
  }
  void hold_queue(int chunk) override {
    say("hold", chunk);
    wait_in(chunk);
  }
  void hold_queue_out(int chunk) override {
    say("hold out", chunk);
    wait_out(chunk);
  }
  void mark_used(int chunk) override { say("used", chunk); }
  void wait_in(int chunk) override { finish(in_, chunk); }
  void wait_out(int chunk) override { finish(out_, chunk); }
  void wait_used(int) override {}
  double newly_held_seconds() override { return 0; }

 private:
  struct Copy {
    int chunk = 0;
    std::byte* to = nullptr;
    const std::byte* from = nullptr;
    size_t nbytes = 0;
    int after = -1;
  };

  // A copy stream does what it was given in order, up to the last copy of the chunk.
  void finish(std::deque<Copy>& stream, int chunk) {
    size_t count = 0;
    for (size_t i = 0; i < stream.size(); ++i) {
      if (stream[i].chunk == chunk) count = i + 1;
    }
    for (; count > 0; --count) {
      const Copy copy = stream.front();
      stream.pop_front();
      if (copy.after >= 0) finish(out_, copy.after);
      std::memcpy(copy.to, copy.from, copy.nbytes);
    }
  }
  void say(const char* what) { log_->emplace_back(what); }
  void say(const char* what, int chunk) { log_->push_back(std::string(what) + " " + std::to_string(chunk)); }

  std::shared_ptr<Log> log_;
  std::deque<Copy> in_, out_;
};

// For one thread. Tensors that are made while it stands may not outlive it.
class SpoilingAllocator final : public c10::Allocator {
 public:
  SpoilingAllocator() : before_(c10::GetCPUAllocator()) { c10::SetCPUAllocator(this, kPriority); }
  ~SpoilingAllocator() override { c10::SetCPUAllocator(before_, kPriority); }

  c10::DataPtr allocate(size_t nbytes) override {
    auto* block = new Block{this, std::vector<char>(nbytes + kAlignment)};
    void* data = block->bytes.data();
    size_t room = block->bytes.size();
    std::align(kAlignment, nbytes, data, room);
    return {data, block, &give_back, c10::Device(c10::DeviceType::CPU)};
  }
  void copy_data(void* to, const void* from, size_t nbytes) const override { default_copy_data(to, from, nbytes); }

 private:
  static constexpr uint8_t kPriority = 100;
  static constexpr size_t kAlignment = 64;
  struct Block {
    SpoilingAllocator* owner;
    std::vector<char> bytes;
  };
  static void give_back(void* given) {
    auto* block = static_cast<Block*>(given);
    std::memset(block->bytes.data(), 0x7f, block->bytes.size());  // NaN, or nearly
    block->owner->spoiled_.emplace_back(block);
  }

  c10::Allocator* before_;
  std::vector<std::unique_ptr<Block>> spoiled_;
};

}  // namespace shoal::testing
