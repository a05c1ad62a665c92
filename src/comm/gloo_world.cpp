// See gloo_world.h.
#include "comm/gloo_world.h"

#include <fmt/format.h>

#include <thread>

namespace shoal {

namespace {

constexpr const char* kFailureKey = "failure";
constexpr int kProbeTag = 1;  // on the control link, where 0 is that of opening a channel
// How long a report may need to reach the store after the connection was seen to be cut, on a busy machine.
constexpr auto kReportDelay = std::chrono::milliseconds(2000);
// How long the rank that serves the store lets the others read in it why the world ended.
constexpr auto kHearingDelay = std::chrono::milliseconds(5000);

}  // namespace

GlooWorld::GlooWorld(const Options& options) : options_(options) { control_ = connect("control"); }

std::shared_ptr<GlooLink> GlooWorld::connect(const std::string& id) {
  const GlooOptions gloo{rank(), size(), timeout(), options_.address, options_.interface};
  try {
    auto link = GlooLink::connect(*options_.store, "gloo/" + id, gloo);
    const std::lock_guard lock(mutex_);
    links_.push_back(link);
    return link;
  } catch (const std::exception& error) {
    throw Error(fmt::format("comm rank {}", rank()),
                fmt::format("connecting {} over Gloo from {}: {}. If this host has several networks, set "
                            "GLOO_SOCKET_IFNAME to the interface that reaches the other ranks.",
                            id, options_.interface.empty() ? options_.address : options_.interface, short_what(error)));
  }
}

GlooWorld::Channel GlooWorld::open(const std::string& name) {
  Channel channel;
  {
    const std::lock_guard lock(mutex_);
    channel.id = fmt::format("channel/{}/{}", name, channels_opened_[name]++);
  }
  const std::string at = "opening " + channel.id;
  if (auto known = failure()) throw error_of(*known, rank(), at);
  {
    // Gloo would wait for a dead rank until the timeout; a connection that exists tells at once.
    const std::lock_guard lock(control_mutex_);
    std::vector<char> heard(static_cast<size_t>(size()));
    std::vector<Transfer> sends, receives;
    char here = 1;
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == rank()) continue;
      sends.push_back({peer, &here, 1, 0});
      receives.push_back({peer, &heard[static_cast<size_t>(peer)], 1, 0});
    }
    const auto deadline = std::chrono::steady_clock::now() + timeout();
    try {
      control_->begin();
      auto receiving = control_->post_receives(receives);
      auto sending = control_->post_sends(sends);
      receiving.wait(deadline);
      sending.wait(deadline);
      control_->end();
    } catch (const LinkBroken& broken) {
      control_->end();
      throw error_of(settle(broken, {"control", control_}, at), rank(), at);
    }
  }
  try {
    channel.link = connect(channel.id);
  } catch (const Error& error) {
    // Gloo does not say whose connection failed. If a rank is gone, so is its connection of the control link.
    const int gone = find_gone_peer();
    if (gone < 0) throw;
    const LinkBroken broken(LinkBroken::How::closed, gone, "its connections are closed");
    throw error_of(settle(broken, {"control", control_}, at), rank(), at);
  }
  return channel;
}

// A send to a peer that is gone fails at once; one to a peer that lives waits to be received, and never is.
int GlooWorld::find_gone_peer() {
  static char nothing = 0;  // outlives the sends
  const std::lock_guard lock(control_mutex_);
  for (const auto deadline = std::chrono::steady_clock::now() + kReportDelay;;) {
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == rank()) continue;
      try {
        control_->begin();
        control_->post_sends({{peer, &nothing, 1, kProbeTag}});
        control_->end();
      } catch (const LinkBroken& broken) {
        control_->end();
        return broken.how == LinkBroken::How::closed ? peer : -1;
      }
    }
    if (std::chrono::steady_clock::now() >= deadline) return -1;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

void GlooWorld::leave(const Channel& channel) noexcept {
  try {
    options_.store->set(fmt::format("left/{}/{}", channel.id, rank()), "left");
  } catch (const std::exception&) {
    // The store is gone, and with it whoever might have read this.
  }
  channel.link->close();
}

std::optional<Failure> GlooWorld::failure() {
  const std::lock_guard lock(mutex_);
  return failure_;
}

Failure GlooWorld::fail(const Failure& failure, int gone) {
  Failure first = failure;
  try {
    first = failure_from_text(options_.store->set_once(kFailureKey, to_text(failure)));
    options_.store->set(fmt::format("heard/{}", rank()), "heard");
  } catch (const Error&) {
    // The store is gone: the own finding has to do.
  }
  std::vector<std::weak_ptr<GlooLink>> links;
  {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = first;
    first = *failure_;
    links = links_;
  }
  for (const auto& weak : links) {
    if (auto link = weak.lock()) link->close();
  }
  if (rank() == options_.store_host) wait_until_heard(gone);
  return first;
}

// The store ends with this process, which may be about to end: the others get a moment to read why.
void GlooWorld::wait_until_heard(int gone) {
  const auto deadline = std::chrono::steady_clock::now() + kHearingDelay;
  try {
    for (int peer = 0; peer < size(); ++peer) {
      if (peer != gone) wait_for_key(*options_.store, fmt::format("heard/{}", peer), deadline);
    }
  } catch (const Error&) {
    // Nobody can read it any more.
  }
}

std::string GlooWorld::cause_store_gone(const LinkBroken& broken) const {
  if (options_.store_host < 0) return cause_died(broken.peer, broken.what());
  const std::string other = broken.peer == options_.store_host ? "" : fmt::format(", and so is rank {}", broken.peer);
  return cause_died(options_.store_host,
                    fmt::format("or left: the rendezvous store that it served is gone{}; {}", other, broken.what()));
}

std::string GlooWorld::cause_of(const LinkBroken& broken, const Channel& channel) {
  if (broken.how == LinkBroken::How::late) return cause_late({broken.peer}, timeout());
  // Whoever stops in order says so first and cuts the connection then, but the two travel separately.
  const auto deadline = std::chrono::steady_clock::now() + kReportDelay;
  const std::string left_key = fmt::format("left/{}/{}", channel.id, broken.peer);
  for (;;) {
    try {
      if (const auto written = options_.store->get(kFailureKey)) return failure_from_text(*written).cause;
      if (options_.store->get(left_key)) return cause_left(broken.peer);
    } catch (const Error&) {
      return cause_store_gone(broken);
    }
    if (std::chrono::steady_clock::now() >= deadline) return cause_died(broken.peer, broken.what());
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

Failure GlooWorld::settle(const LinkBroken& broken, const Channel& channel, const std::string& at) {
  if (auto known = failure()) return *known;
  const bool closed = broken.how == LinkBroken::How::closed;
  return fail({rank(), at, cause_of(broken, channel)}, closed ? broken.peer : -1);
}

}  // namespace shoal
