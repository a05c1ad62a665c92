// See gloo_link.h.
#include "comm/host/gloo_link.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>

#include "comm/host/no_pipe_signal.h"

namespace shoal {

using How = LinkBroken::How;
using Work = c10::intrusive_ptr<c10d::Work>;

namespace {

constexpr const char* kGlooTimedOut = "Timed out waiting";  // as the Gloo of torch 2.11 words it

}  // namespace

struct GlooLink::State {
  std::mutex mutex;
  c10::intrusive_ptr<c10d::Backend> backend;  // null once the connections are cut
  std::vector<Work> pending;                  // of the collective in flight, for close()
  bool busy = false;
  bool closed = false;
  std::vector<int> ranks;          // their numbers in the world
  std::atomic<uint64_t> begun{0};  // collectives
  std::atomic<int> awaited{-1};    // stays as it is when a wait fails, until the next begins
};

struct GlooLink::Posted::Items {
  struct Item {
    Work work;
    int peer;
  };
  std::vector<Item> list;
  std::atomic<int>* awaited = nullptr;  // the link's, which outlives its transfers
};

GlooLink::Posted::Posted() : items_(std::make_unique<Items>()) {}
GlooLink::Posted::Posted(Posted&&) noexcept = default;
GlooLink::Posted& GlooLink::Posted::operator=(Posted&&) noexcept = default;
GlooLink::Posted::~Posted() = default;

GlooLink::GlooLink(std::unique_ptr<State> state) : state_(std::move(state)) {}
GlooLink::~GlooLink() = default;

std::shared_ptr<GlooLink> GlooLink::connect(const C10dStore& store, const std::string& id, const GlooOptions& options,
                                            std::vector<int> ranks) {
  auto state = std::make_unique<State>();
  for (int rank = 0; ranks.empty() && rank < options.size; ++rank) state->ranks.push_back(rank);
  if (!ranks.empty()) state->ranks = std::move(ranks);
  const NoPipeSignal held_back;  // nor for Gloo's own threads, which are made here
  state->backend = make_gloo(store.client_under(id), options);
  return std::shared_ptr<GlooLink>(new GlooLink(std::move(state)));
}

void GlooLink::begin() {
  const std::lock_guard lock(state_->mutex);
  if (state_->closed) throw LinkBroken(How::interrupted, -1, "closed");
  state_->busy = true;
  ++state_->begun;
  state_->awaited = -1;
}

std::optional<WaitReports::Wait> GlooLink::awaited() const {
  const int rank = state_->awaited;
  if (rank < 0) return std::nullopt;
  return WaitReports::Wait{state_->begun, rank};
}

void GlooLink::end() noexcept {
  c10::intrusive_ptr<c10d::Backend> cut;  // destroyed after the lock
  std::vector<Work> dropped;
  const std::lock_guard lock(state_->mutex);
  state_->busy = false;
  dropped.swap(state_->pending);
  if (state_->closed) cut = std::move(state_->backend);
}

void GlooLink::close() noexcept {
  c10::intrusive_ptr<c10d::Backend> cut;  // destroyed after the lock
  const std::lock_guard lock(state_->mutex);
  state_->closed = true;
  if (!state_->busy) {
    cut = std::move(state_->backend);
    return;
  }
  for (const Work& work : state_->pending) work->abort();
}

GlooLink::Posted GlooLink::post(const std::vector<Transfer>& transfers, bool send) {
  Posted posted;
  posted.items_->awaited = &state_->awaited;
  const NoPipeSignal held_back;
  for (const Transfer& transfer : transfers) {
    if (transfer.nbytes == 0) continue;
    const int peer = state_->ranks.at(static_cast<size_t>(transfer.peer));
    std::vector<at::Tensor> bytes{
        at::from_blob(transfer.data, {static_cast<int64_t>(transfer.nbytes)}, at::TensorOptions(at::kByte))};
    const std::lock_guard lock(state_->mutex);
    if (state_->closed) throw LinkBroken(How::interrupted, peer, "closed");
    try {
      Work work = send ? state_->backend->send(bytes, transfer.peer, transfer.tag)
                       : state_->backend->recv(bytes, transfer.peer, transfer.tag);
      state_->pending.push_back(work);
      posted.items_->list.push_back({std::move(work), peer});
    } catch (const std::exception& error) {
      throw LinkBroken(How::closed, peer, short_what(error));
    }
  }
  return posted;
}

// Gloo's wait counts whole milliseconds: rounded up, so that it never ends before the deadline. Whether it ended for
// the time or for a cut connection is told by Gloo's words alone; the clock says nothing on a machine that is slow to
// wake.
void GlooLink::Posted::wait(Deadline deadline) {
  for (const Items::Item& item : items_->list) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    bool done = false;
    *items_->awaited = item.peer;
    try {
      done = item.work->wait(std::max(left, std::chrono::milliseconds(1)));
    } catch (const std::exception& error) {
      const std::string text = short_what(error);
      const bool late = text.find(kGlooTimedOut) != std::string::npos;
      throw LinkBroken(late ? How::late : How::closed, item.peer, text);
    }
    if (!done) throw LinkBroken(How::interrupted, item.peer, "interrupted");
  }
  if (items_->awaited != nullptr) *items_->awaited = -1;
}

}  // namespace shoal
