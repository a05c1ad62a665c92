// See behind_file.h.
#include "checkpoint/behind_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/digest.h"
#include "shoal/error.h"

namespace shoal::checkpoint {

namespace {

int64_t padded(int64_t nbytes) {
  constexpr auto kPage = static_cast<int64_t>(kDirectAlignment);
  return (nbytes + kPage - 1) / kPage * kPage;
}

}  // namespace

int64_t BehindFile::least_window(const std::vector<FileRange>& ranges, int64_t nbytes) {
  int64_t largest = 0;
  for (const FileRange& range : ranges) largest = std::max(largest, padded(range.nbytes));
  return std::min(padded(nbytes), largest + kBlock);  // a range, beside a block of which a part is still to come
}

BehindFile::BehindFile(std::span<std::byte> window, Options options)
    : window_(window),
      options_(std::move(options)),
      padded_nbytes_(padded(options_.nbytes)),
      blocks_((padded_nbytes_ + kBlock - 1) / kBlock),
      file_(DurableFile::create_sized(options_.path, padded_nbytes_)),
      block_done_(static_cast<size_t>(blocks_), false),
      range_done_(options_.ranges.size(), false),
      digests_(options_.ranges.size(), 0) {
  SHOAL_CHECK(static_cast<int64_t>(window_.size()) >= least_window(options_.ranges, options_.nbytes));
  SHOAL_CHECK_EQ(window_.size() % kDirectAlignment, 0u);
  start_threads();
}

BehindFile::~BehindFile() { end_threads(); }

// All or none: those that were started end before the file that they write does.
void BehindFile::start_threads() {
  try {
    for (int thread = 0; thread < options_.threads; ++thread) {
      if (options_.before_thread) options_.before_thread(thread);
      threads_.emplace_back([this] { serve(); });
    }
  } catch (const std::system_error& error) {
    end_threads();
    throw Error("checkpoint", fmt::format("cannot start a thread to write {}: {}. Raise the limit of threads (ulimit "
                                          "-u), or save and wait.",
                                          options_.path, error.what()));
  }
}

void BehindFile::end_threads() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

std::vector<std::span<std::byte>> BehindFile::parts_of(int64_t offset, int64_t nbytes) const {
  const auto begin = static_cast<size_t>(offset) % window_.size();
  const auto whole = static_cast<size_t>(nbytes);
  const size_t first = std::min(whole, window_.size() - begin);
  std::vector<std::span<std::byte>> parts = {window_.subspan(begin, first)};
  if (first < whole) parts.push_back(window_.first(whole - first));
  return parts;
}

int64_t BehindFile::free_before() const {
  const int64_t written = std::min(first_open_block_ * kBlock, padded_nbytes_);
  const int64_t digested =
      first_open_range_ < options_.ranges.size() ? options_.ranges[first_open_range_].offset : padded_nbytes_;
  return std::min(written, digested);
}

void BehindFile::put(const std::function<void(std::byte*)>& fill) {
  const FileRange range = options_.ranges.at(ranges_put_);
  const int64_t end = padded(range.offset + range.nbytes);
  {
    std::unique_lock lock(mutex_);
    SHOAL_CHECK(error_ || range.offset == put_, "a range at {} is put behind {}", range.offset, put_);
    changed_.wait(lock, [&] { return error_ || end - free_before() <= static_cast<int64_t>(window_.size()); });
    if (error_) {
      ++ranges_put_;
      return;
    }
  }
  const std::vector<std::span<std::byte>> parts = parts_of(range.offset, end - range.offset);
  if (parts.size() == 1) {
    fill(parts[0].data());
    std::memset(parts[0].data() + range.nbytes, 0, static_cast<size_t>(end - range.offset - range.nbytes));
  } else if (!parts.empty()) {
    over_the_end_.assign(static_cast<size_t>(end - range.offset), std::byte{0});
    fill(over_the_end_.data());
    std::memcpy(parts[0].data(), over_the_end_.data(), parts[0].size());
    std::memcpy(parts[1].data(), over_the_end_.data() + parts[0].size(), parts[1].size());
  }
  {
    const std::lock_guard lock(mutex_);
    ++ranges_put_;
    put_ = end;
  }
  changed_.notify_all();
}

bool BehindFile::has_block() const {
  return next_block_ < blocks_ && put_ >= std::min((next_block_ + 1) * kBlock, padded_nbytes_);
}

bool BehindFile::has_range() const { return next_range_ < ranges_put_; }

// Each thread takes what is there: a block to write first, since the disk takes longest, else a checksum to make. The
// one who ends the last of both syncs the file.
void BehindFile::serve() {
  std::unique_lock lock(mutex_);
  const auto carry_out = [&](const std::function<void()>& part) {
    lock.unlock();
    std::exception_ptr error;
    try {
      part();
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    if (error && !error_) error_ = error;
    return !error;
  };
  for (;;) {
    const auto all_done = [&] { return all_written() && first_open_range_ == options_.ranges.size(); };
    changed_.wait(lock, [&] {
      return stopping_ || done_ || error_ || has_block() || has_range() || (all_done() && !finishing_);
    });
    if (stopping_ || done_) return;
    if (error_) {
      done_ = true;
    } else if (has_block()) {
      const int64_t block = next_block_++;
      if (carry_out([&] { write_block(block); })) {
        block_done_[static_cast<size_t>(block)] = true;
        ++blocks_done_;
        while (first_open_block_ < blocks_ && block_done_[static_cast<size_t>(first_open_block_)]) ++first_open_block_;
      }
    } else if (has_range()) {
      const size_t range = next_range_++;
      if (carry_out([&] { digest_range(range); })) {
        range_done_[range] = true;
        while (first_open_range_ < range_done_.size() && range_done_[first_open_range_]) ++first_open_range_;
      }
    } else {
      finishing_ = true;
      carry_out([&] { finish(); });
      done_ = true;
    }
    changed_.notify_all();
  }
}

void BehindFile::write_block(int64_t block) {
  int64_t offset = block * kBlock;
  if (options_.before_write) options_.before_write(offset);
  for (const std::span<std::byte> part : parts_of(offset, std::min(kBlock, padded_nbytes_ - offset))) {
    file_.write_at(offset, part.data(), part.size());
    offset += static_cast<int64_t>(part.size());
  }
}

void BehindFile::digest_range(size_t index) {
  const FileRange& range = options_.ranges[index];
  DigestStream digest;
  for (const std::span<std::byte> part : parts_of(range.offset, range.nbytes)) digest.add(part.data(), part.size());
  digests_[index] = digest.value();
}

void BehindFile::finish() {
  file_.cut(options_.nbytes);
  file_.sync();
}

bool BehindFile::is_done() const {
  const std::lock_guard lock(mutex_);
  return done_;
}

int64_t BehindFile::written_nbytes() const {
  const std::lock_guard lock(mutex_);
  return std::min(blocks_done_ * kBlock, options_.nbytes);
}

const std::vector<uint64_t>& BehindFile::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return done_; });
  if (error_) std::rethrow_exception(error_);
  return digests_;
}

bool BehindFile::wait_for(double seconds) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return done_; });
}

}  // namespace shoal::checkpoint
