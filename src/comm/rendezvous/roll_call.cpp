// See roll_call.h.
//   roll/<rank>/alive       a number that grows while the rank lives
//   roll/<rank>/connected   "yes" or "no", once connecting has ended there
#include "comm/rendezvous/roll_call.h"

#include <fmt/format.h>

#include "shoal/error.h"

namespace shoal {

namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kPeriod = std::chrono::milliseconds(250);  // of signs of life
constexpr auto kPause = std::chrono::milliseconds(20);    // between looks

std::string alive_key(int rank) { return fmt::format("roll/{}/alive", rank); }
std::string connected_key(int rank) { return fmt::format("roll/{}/connected", rank); }

struct Peer {
  bool connected = false;
  std::optional<std::string> sign;
  Clock::time_point changed = Clock::now();
};

}  // namespace

RollCall::RollCall(KeyStore& store, int rank, int size, std::chrono::milliseconds silence)
    : store_(store), rank_(rank), size_(size), silence_(silence) {
  store_.set(alive_key(rank_), "0");
  thread_ = std::thread([this] { beat(); });
}

RollCall::~RollCall() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  stopping_.notify_all();
  thread_.join();
}

void RollCall::beat() {
  std::unique_lock lock(mutex_);
  for (int64_t sign = 1; !stopping_.wait_for(lock, kPeriod, [this] { return stopped_; }); ++sign) {
    try {
      store_.set(alive_key(rank_), std::to_string(sign));
    } catch (const Error&) {
      return;  // wait() finds the store gone too
    }
  }
}

RollCall::Verdict RollCall::wait(const std::function<std::optional<bool>()>& connected,
                                 const std::function<void()>& look_around) {
  std::optional<bool> own;
  std::vector<Peer> peers(static_cast<size_t>(size_));
  std::optional<Clock::time_point> lost_since;
  for (;; std::this_thread::sleep_for(kPause)) {
    look_around();
    if (!own && (own = connected())) store_.set(connected_key(rank_), *own ? "yes" : "no");
    bool all_connected = true, any_silent = false;
    std::optional<int> lost;
    for (int rank = 0; rank < size_; ++rank) {
      Peer& peer = peers[rank];
      if (!peer.connected) {
        const auto said = store_.get(connected_key(rank));
        peer.connected = said == "yes";
        if (said == "no" && !lost) lost = rank;
      }
      all_connected = all_connected && peer.connected;
      const auto sign = store_.get(alive_key(rank));
      if (sign != peer.sign) peer.changed = Clock::now();
      peer.sign = sign;
      any_silent = any_silent || Clock::now() - peer.changed > silence_;
    }
    // Also those who connected and stopped giving signs: all of them had seen what this rank sees.
    if (all_connected) return {};
    if (any_silent) {  // and who fell silent a little later, since several may die together
      Verdict verdict;
      for (int rank = 0; rank < size_; ++rank) {
        if (Clock::now() - peers[rank].changed > silence_ / 2) verdict.silent.push_back(rank);
      }
      return verdict;
    }
    // Who could not connect waits for a rank to fall silent, and is believed when none does; it words that better than
    // those who could.
    if (lost && !lost_since) lost_since = Clock::now();
    if (lost_since && Clock::now() - *lost_since > silence_ + (own == false ? 2 : 4) * kPeriod) return {{}, lost};
  }
}

}  // namespace shoal
