// See gloo_link.h.
#include "comm/gloo_link.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <algorithm>
#include <chrono>
#include <mutex>

#include "comm/no_pipe_signal.h"

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
};

struct GlooLink::Posted::Items {
  struct Item {
    Work work;
    int peer;
  };
  std::vector<Item> list;
};

GlooLink::Posted::Posted() : items_(std::make_unique<Items>()) {}
GlooLink::Posted::Posted(Posted&&) noexcept = default;
GlooLink::Posted& GlooLink::Posted::operator=(Posted&&) noexcept = default;
GlooLink::Posted::~Posted() = default;

GlooLink::GlooLink(std::unique_ptr<State> state) : state_(std::move(state)) {}
GlooLink::~GlooLink() = default;

std::shared_ptr<GlooLink> GlooLink::connect(const C10dStore& store, const std::string& id, const GlooOptions& options) {
  auto state = std::make_unique<State>();
  const NoPipeSignal held_back;  // nor for Gloo's own threads, which are made here
  state->backend = make_gloo(store.client_under(id), options);
  return std::shared_ptr<GlooLink>(new GlooLink(std::move(state)));
}

void GlooLink::begin() {
  const std::lock_guard lock(state_->mutex);
  if (state_->closed) throw LinkBroken(How::interrupted, -1, "closed");
  state_->busy = true;
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
  const NoPipeSignal held_back;
  for (const Transfer& transfer : transfers) {
    if (transfer.nbytes == 0) continue;
    std::vector<at::Tensor> bytes{
        at::from_blob(transfer.data, {static_cast<int64_t>(transfer.nbytes)}, at::TensorOptions(at::kByte))};
    const std::lock_guard lock(state_->mutex);
    if (state_->closed) throw LinkBroken(How::interrupted, transfer.peer, "closed");
    try {
      Work work = send ? state_->backend->send(bytes, transfer.peer, transfer.tag)
                       : state_->backend->recv(bytes, transfer.peer, transfer.tag);
      state_->pending.push_back(work);
      posted.items_->list.push_back({std::move(work), transfer.peer});
    } catch (const std::exception& error) {
      throw LinkBroken(How::closed, transfer.peer, short_what(error));
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
    try {
      done = item.work->wait(std::max(left, std::chrono::milliseconds(1)));
    } catch (const std::exception& error) {
      const std::string text = short_what(error);
      const bool late = text.find(kGlooTimedOut) != std::string::npos;
      throw LinkBroken(late ? How::late : How::closed, item.peer, text);
    }
    if (!done) throw LinkBroken(How::interrupted, item.peer, "interrupted");
  }
}

}  // namespace shoal
