// See gloo_link.h.
#include "comm/host/gloo_link.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <limits>
#include <mutex>
#include <thread>

#include "comm/host/no_pipe_signal.h"

namespace shoal {

using How = LinkBroken::How;
using Work = c10::intrusive_ptr<c10d::Work>;
using Backends = std::vector<c10::intrusive_ptr<c10d::Backend>>;

namespace {

// As torch's Gloo words it; the tests of cut cables and frozen ranks hold it to that.
constexpr const char* kGlooTimedOut = "Timed out waiting";

constexpr int kProbeTag = std::numeric_limits<int>::max();  // of no collective
constexpr auto kProbeInterval = std::chrono::seconds(1);

}  // namespace

struct GlooLink::State {
  std::mutex mutex;
  int rank = 0;               // in the group
  Backends by_peer;           // none once the connections are cut
  std::vector<Work> pending;  // of the collective in flight, for close()
  bool busy = false;
  bool closed = false;
  std::vector<int> ranks;          // their numbers in the world
  std::atomic<uint64_t> begun{0};  // collectives
  std::atomic<int> awaited{-1};    // stays as it is when a wait fails, until the next begins
  struct AwaitedSend {
    Work work;
    int peer = 0;      // in the group
    std::string lost;  // why it will never complete
  };
  std::optional<AwaitedSend> awaited_send;
  std::condition_variable ending;
  bool ended = false;
  std::thread prober;

  Work begin_transfer(const Transfer& transfer, bool send);  // by who holds the mutex
  std::string probe(int peer);                               // the same; "" where the connection stands
  void probe_sends();
  // Returns what was there.
  std::optional<AwaitedSend> set_awaited_send(std::optional<AwaitedSend> send) {
    const std::lock_guard lock(mutex);
    awaited_send.swap(send);
    return send;
  }
};

struct GlooLink::Posted::Items {
  struct Item {
    Work work;
    int peer;  // in the group
    bool send;
  };
  std::vector<Item> list;
  State* link = nullptr;  // outlives its transfers
};

GlooLink::Posted::Posted() : items_(std::make_unique<Items>()) {}
GlooLink::Posted::Posted(Posted&&) noexcept = default;
GlooLink::Posted& GlooLink::Posted::operator=(Posted&&) noexcept = default;
GlooLink::Posted::~Posted() = default;

GlooLink::GlooLink(std::unique_ptr<State> state) : state_(std::move(state)) {
  state_->prober = std::thread([link = state_.get()] { link->probe_sends(); });
}

GlooLink::~GlooLink() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->ended = true;
  }
  state_->ending.notify_all();
  state_->prober.join();
}

std::shared_ptr<GlooLink> GlooLink::connect(const C10dStore& store, const std::string& id, const GlooOptions& options,
                                            std::vector<int> ranks) {
  auto state = std::make_unique<State>();
  for (int rank = 0; ranks.empty() && rank < options.size; ++rank) state->ranks.push_back(rank);
  if (!ranks.empty()) state->ranks = std::move(ranks);
  const NoPipeSignal held_back;  // nor for Gloo's own threads, which are made here
  state->rank = options.rank;
  state->by_peer = make_gloo(store.client_under(id), options);
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
  Backends cut;  // destroyed after the lock
  std::vector<Work> dropped;
  const std::lock_guard lock(state_->mutex);
  state_->busy = false;
  dropped.swap(state_->pending);
  if (state_->closed) cut.swap(state_->by_peer);
}

void GlooLink::close() noexcept {
  Backends cut;  // destroyed after the lock
  const std::lock_guard lock(state_->mutex);
  state_->closed = true;
  if (!state_->busy) {
    cut.swap(state_->by_peer);
    return;
  }
  for (const Work& work : state_->pending) work->abort();
}

Work GlooLink::State::begin_transfer(const Transfer& transfer, bool send) {
  std::vector<at::Tensor> bytes{
      at::from_blob(transfer.data, {static_cast<int64_t>(transfer.nbytes)}, at::TensorOptions(at::kByte))};
  c10d::Backend& pair = *by_peer.at(static_cast<size_t>(transfer.peer));
  const int other = rank < transfer.peer ? 1 : 0;  // the peer's number in the pair
  return send ? pair.send(bytes, other, transfer.tag) : pair.recv(bytes, other, transfer.tag);
}

GlooLink::Posted GlooLink::post(const std::vector<Transfer>& transfers, bool send) {
  Posted posted;
  posted.items_->link = state_.get();
  const NoPipeSignal held_back;
  for (const Transfer& transfer : transfers) {
    if (transfer.nbytes == 0) continue;
    const int peer = state_->ranks.at(static_cast<size_t>(transfer.peer));
    const std::lock_guard lock(state_->mutex);
    if (state_->closed) throw LinkBroken(How::interrupted, peer, "closed");
    try {
      Work work = state_->begin_transfer(transfer, send);
      state_->pending.push_back(work);
      posted.items_->list.push_back({std::move(work), transfer.peer, send});
    } catch (const std::exception& error) {
      throw LinkBroken(How::closed, peer, short_what(error));
    }
  }
  return posted;
}

// [Note: sends that Gloo forgets]
// If a connection ends while Gloo writes a send into it, the write's error is swallowed and the send put aside until
// the connection can be written again; then Gloo reads the end of the connection and wakes all that wait on it, but not
// what it put aside. A wait for that send would last until its deadline. So a thread of the link begins a byte more to
// the peer whose send has been waited for long: on a connection that has ended this throws, and the wait is told.
std::string GlooLink::State::probe(int peer) {
  static char nothing = 0;  // outlives the sends
  try {
    begin_transfer({peer, &nothing, 1, kProbeTag}, true);
  } catch (const std::exception& error) {
    return short_what(error);
  }
  return "";
}

bool GlooLink::is_closed(int peer) {
  const NoPipeSignal held_back;
  const std::lock_guard lock(state_->mutex);
  return !state_->by_peer.empty() && !state_->probe(peer).empty();
}

void GlooLink::State::probe_sends() {
  const NoPipeSignal held_back;
  const c10d::Work* seen = nullptr;
  for (std::unique_lock lock(mutex); !ending.wait_for(lock, kProbeInterval, [&] { return ended; });) {
    const c10d::Work* const now = awaited_send ? awaited_send->work.get() : nullptr;
    const bool waited_long = now != nullptr && now == seen;
    seen = now;
    if (!waited_long || by_peer.empty()) continue;
    awaited_send->lost = probe(awaited_send->peer);
    if (!awaited_send->lost.empty()) awaited_send->work->abort();
  }
}

// Gloo's wait counts whole milliseconds: rounded up, so that it never ends before the deadline. Whether it ended for
// the time or for a cut connection is told by Gloo's words alone; the clock says nothing on a machine that is slow to
// wake.
void GlooLink::Posted::wait(Deadline deadline) {
  State* const link = items_->link;
  for (const Items::Item& item : items_->list) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    const int peer = link->ranks.at(static_cast<size_t>(item.peer));
    link->awaited = peer;
    if (item.send) link->set_awaited_send(State::AwaitedSend{item.work, item.peer, ""});
    bool done = false;
    std::string lost;
    try {
      done = item.work->wait(std::max(left, std::chrono::milliseconds(1)));
    } catch (const std::exception& error) {
      lost = short_what(error);
    }
    if (item.send) {
      const auto probed = link->set_awaited_send(std::nullopt);
      if (!done && lost.empty()) lost = probed->lost;
    }
    if (!lost.empty()) {
      const bool late = lost.find(kGlooTimedOut) != std::string::npos;
      throw LinkBroken(late ? How::late : How::closed, peer, lost);
    }
    if (!done) throw LinkBroken(How::interrupted, peer, "interrupted");
  }
  if (link != nullptr) link->awaited = -1;
}

}  // namespace shoal
