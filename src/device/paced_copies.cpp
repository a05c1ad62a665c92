// See paced_copies.h.
#include "device/paced_copies.h"

#include <algorithm>
#include <utility>

namespace shoal {

PacedCopies::PacedCopies(std::unique_ptr<CopyStreams> streams, int chunks)
    : copy_streams_(std::move(streams)), brings_(static_cast<size_t>(chunks)), returns_(static_cast<size_t>(chunks)) {}

PacedCopies::~PacedCopies() {
  finish_pinning();
  try {
    if (in_.last >= 0) copy_streams_->wait_in(in_.last);
    if (out_.last >= 0) copy_streams_->wait_out(out_.last);
  } catch (...) {  // a GPU that failed has said so where its bytes were needed
  }
}

void PacedCopies::pin(std::byte* host, size_t nbytes) {
  pinning_ = std::thread([this, host, nbytes] { unpinned_because_ = copy_streams_->pin(host, nbytes); });
}

void PacedCopies::finish_pinning() {
  if (pinning_.joinable()) pinning_.join();
}

void PacedCopies::bring(int chunk, const Copy& copy, int after) {
  in_.orders.push_back({chunk, copy, after, after < 0 ? 0 : returns_[static_cast<size_t>(after)]});
  brings_[static_cast<size_t>(chunk)] = ++in_.ordered;
}

void PacedCopies::take_back(int chunk, const Copy& copy) {
  copy_streams_->mark_used(chunk);
  out_.orders.push_back({chunk, copy});
  returns_[static_cast<size_t>(chunk)] = ++out_.ordered;
}

void PacedCopies::give_next_out() {
  finish_pinning();
  const Order order = out_.orders.front();
  out_.orders.pop_front();
  copy_streams_->copy_out(order.chunk, order.copy.to, order.copy.from, order.copy.nbytes);
  counters_.taken_nbytes += order.copy.nbytes;
  ++out_.given;
  out_.last = order.chunk;
}

void PacedCopies::give_next_in() {
  finish_pinning();
  const Order order = in_.orders.front();
  while (out_.given < order.after_count) give_next_out();
  in_.orders.pop_front();
  copy_streams_->copy_in(order.chunk, order.copy.to, order.copy.from, order.copy.nbytes, order.after);
  counters_.brought_nbytes += order.copy.nbytes;
  ++in_.given;
  in_.last = order.chunk;
}

void PacedCopies::begin_use(int chunk) {
  if (step_ended_) counters_.held_seconds += copy_streams_->newly_held_seconds();
  step_ended_ = false;
  while (in_.given < brings_[static_cast<size_t>(chunk)]) give_next_in();
  copy_streams_->hold_queue(chunk);
}

void PacedCopies::pace(size_t may_wait) {
  ++paces_;
  const auto pending = static_cast<int64_t>(in_.orders.size() + out_.orders.size());
  if (pending == 0 || expected_paces_ == 0) return;
  const int64_t left = std::max<int64_t>(1, expected_paces_ - paces_);  // one call to spare
  int64_t share = (pending + left - 1) / left;
  copy_streams_->follow_queue();
  for (; in_.orders.size() > may_wait; --share) give_next_in();
  for (; may_wait == 0 && !out_.orders.empty(); --share) give_next_out();
  // What lies in the way goes first; then both copy streams have something.
  for (; share > 0 && (!in_.orders.empty() || !out_.orders.empty()); --share) {
    const bool out = !out_.orders.empty() && (in_.orders.empty() || out_.given <= in_.orders.front().after_count);
    out ? give_next_out() : give_next_in();
  }
}

void PacedCopies::end_step() {
  expected_paces_ = paces_;
  paces_ = 0;
  step_ended_ = true;
}

void PacedCopies::settle() {
  while (!out_.orders.empty()) give_next_out();
  while (!in_.orders.empty()) give_next_in();
  if (in_.last >= 0) copy_streams_->wait_in(in_.last);
  if (out_.last >= 0) copy_streams_->wait_out(out_.last);
}

}  // namespace shoal
