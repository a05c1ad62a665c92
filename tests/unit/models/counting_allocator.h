// Counts the bytes that tensors hold on the CPU while it is in place.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>

#include <algorithm>
#include <cstdint>

namespace shoal::testing {

// For one thread. Tensors that are made while it stands may not outlive it.
class CountingAllocator final : public c10::Allocator {
 public:
  CountingAllocator() : before_(c10::GetCPUAllocator()) { c10::SetCPUAllocator(this, kPriority); }
  ~CountingAllocator() override { c10::SetCPUAllocator(before_, kPriority); }

  int64_t held() const { return held_; }
  int64_t peak() const { return peak_; }

  c10::DataPtr allocate(size_t nbytes) override {
    auto* memory = static_cast<char*>(c10::alloc_cpu(kAhead + nbytes));
    *reinterpret_cast<Block*>(memory) = {this, static_cast<int64_t>(nbytes)};
    held_ += static_cast<int64_t>(nbytes);
    peak_ = std::max(peak_, held_);
    return {memory + kAhead, memory + kAhead, &give_back, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &give_back; }
  void copy_data(void* to, const void* from, size_t nbytes) const override { default_copy_data(to, from, nbytes); }

 private:
  static constexpr uint8_t kPriority = 100;
  static constexpr size_t kAhead = 64;  // bytes before the memory that is handed out, for a Block

  struct Block {
    CountingAllocator* owner;
    int64_t nbytes;
  };
  static void give_back(void* given) {
    char* memory = static_cast<char*>(given) - kAhead;
    const Block* block = reinterpret_cast<const Block*>(memory);
    block->owner->held_ -= block->nbytes;
    c10::free_cpu(memory);
  }

  c10::Allocator* before_;
  int64_t held_ = 0;
  int64_t peak_ = 0;
};

}  // namespace shoal::testing
