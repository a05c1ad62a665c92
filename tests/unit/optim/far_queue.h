// A queue that passes for a GPU: it works in host memory, and fails when it is given memory that a GPU could not reach.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "device/host_queue.h"
#include "device/queue.h"
#include "kernels/segment.h"
#include "shoal/error.h"

namespace shoal::testing {

class FarQueue final : public Queue {
 public:
  // Memory that is the host's alone.
  void forbid(const void* memory, size_t nbytes) {
    const auto* begin = static_cast<const std::byte*>(memory);
    forbidden_.emplace_back(begin, begin + nbytes);
  }

  // Larger pieces of its memory are not to be had.
  void refuse_above(size_t nbytes) { most_ = nbytes; }
  void refuse_host_above(size_t nbytes) { most_host_ = nbytes; }

  int device() const override { return 0; }
  void* stream() const override { return nullptr; }
  std::shared_ptr<Slab> allocate(size_t nbytes, std::shared_ptr<Ledger> ledger, MemoryKind kind) override {
    if (nbytes > most_) throw Error("memory", "none left");
    return host_->allocate(nbytes, std::move(ledger), kind);
  }
  std::shared_ptr<Slab> allocate_host(size_t nbytes, std::shared_ptr<Ledger> ledger, MemoryKind kind) override {
    if (nbytes > most_host_) throw Error("memory", "none left");
    std::shared_ptr<Slab> slab = host_->allocate(nbytes, std::move(ledger), kind);
    copied_only_.emplace_back(slab->data(), slab->data() + nbytes);
    return slab;
  }
  std::unique_ptr<Arena> make_arena(std::vector<size_t> tenant_nbytes, std::shared_ptr<Ledger> ledger) override {
    return host_->make_arena(std::move(tenant_nbytes), std::move(ledger));
  }
  void upload(void* to, const void* from_host, size_t nbytes) override {
    check(to);
    uploaded += nbytes;
    host_->upload(to, from_host, nbytes);
  }
  void download(void* to_host, const void* from, size_t nbytes) override {
    check(from);
    downloaded += nbytes;
    host_->download(to_host, from, nbytes);
  }
  std::unique_ptr<CopyStreams> make_copy_streams(int chunks) override {
    ++copy_streams_made;
    return streams ? streams() : host_->make_copy_streams(chunks);
  }
  void on_host(int64_t numel, const std::function<void(int64_t, int64_t)>& work) override {
    host_->on_host(numel, work);
  }
  void zero(void* memory, size_t nbytes) override {
    check(memory);
    host_->zero(memory, nbytes);
  }
  void copy(void* to, const void* from, size_t nbytes) override {
    check(to);
    check(from);
    host_->copy(to, from, nbytes);
  }
  void convert(const void* in, DType in_dtype, void* out, DType out_dtype, int64_t numel) override {
    check(in);
    check(out);
    host_->convert(in, in_dtype, out, out_dtype, numel);
  }
  void add(const void* in, DType in_dtype, void* out, DType out_dtype, int64_t numel) override {
    host_->add(in, in_dtype, out, out_dtype, numel);
  }
  void quantize(const void* values, DType dtype, int64_t numel, int bits, void* blocks,
                const kernels::ErrorFeedback& feedback) override {
    check_worked_on(values);
    check_worked_on(blocks);
    ++quantized;
    host_->quantize(values, dtype, numel, bits, blocks, feedback);
  }
  void dequantize(const void* blocks, int bits, void* values, DType dtype, int64_t numel) override {
    check_worked_on(blocks);
    check_worked_on(values);
    ++dequantized;
    host_->dequantize(blocks, bits, values, dtype, numel);
  }
  void fold_blocks(const kernels::BlockFold& args) override { host_->fold_blocks(args); }
  void ordered_fold(const kernels::OrderedFold& args) override { host_->ordered_fold(args); }
  void sum_squares(const void* values, DType dtype, int64_t numel, int64_t first_run, double* pieces) override {
    host_->sum_squares(values, dtype, numel, first_run, pieces);
  }
  void sum_pieces(const std::vector<kernels::PieceSums>& ranges) override { host_->sum_pieces(ranges); }
  void read_masters(const kernels::Segment& segment, float* values) override { host_->read_masters(segment, values); }
  void trust_ratios(const kernels::TrustRatios& args) override { host_->trust_ratios(args); }
  std::unique_ptr<UpdateList> make_update_list(std::vector<kernels::Segment> segments,
                                               std::vector<int> groups) override {
    for (const kernels::Segment& segment : segments) {
      for (const void* pointer : {static_cast<const void*>(segment.weight), segment.grad,
                                  static_cast<const void*>(segment.master), static_cast<const void*>(segment.first)}) {
        check_worked_on(pointer);
      }
    }
    return host_->make_update_list(std::move(segments), std::move(groups));
  }
  void update(const UpdateList& list, const PlacedSteps& steps) override { host_->update(list, steps); }
  PlacedSteps decide(const kernels::Decision& decision, const StepChoices& choices, void* picked) override {
    return host_->decide(decision, choices, picked);
  }
  // Its reads are there when they are waited for, and not before; they count who waits.
  std::unique_ptr<LateRead> make_late_read(size_t nbytes) override {
    return std::make_unique<FarRead>(host_->make_late_read(nbytes), waits);
  }

  size_t uploaded = 0, downloaded = 0;
  std::atomic<int> quantized = 0, dequantized = 0;  // calls
  int copy_streams_made = 0;
  std::atomic<int> waits = 0;
  std::function<std::unique_ptr<CopyStreams>()>
      streams;  // the test's own; none: copies are through when they are given

 private:
  class FarRead final : public LateRead {
   public:
    FarRead(std::unique_ptr<LateRead> read, std::atomic<int>& waits) : read_(std::move(read)), waits_(waits) {}
    void begin(const void* from) override {
      read_->begin(from);
      waited_ = false;
    }
    bool ready() const override { return waited_; }
    const void* wait() override {
      if (!waited_) ++waits_;
      waited_ = true;
      return read_->wait();
    }

   private:
    std::unique_ptr<LateRead> read_;
    std::atomic<int>& waits_;
    std::atomic<bool> waited_ = false;
  };

  void check(const void* pointer) const {
    for (const auto& [begin, end] : forbidden_) {
      EXPECT_FALSE(begin <= pointer && pointer < end) << "a GPU cannot reach this memory";
    }
  }

  void check_worked_on(const void* pointer) const {
    check(pointer);
    for (const auto& [begin, end] : copied_only_) {
      EXPECT_FALSE(begin <= pointer && pointer < end) << "a GPU copies from this memory, and works on no other";
    }
  }

  std::unique_ptr<Queue> host_ = make_host_queue();
  size_t most_ = SIZE_MAX, most_host_ = SIZE_MAX;
  std::vector<std::pair<const std::byte*, const std::byte*>> forbidden_, copied_only_;
};

}  // namespace shoal::testing
