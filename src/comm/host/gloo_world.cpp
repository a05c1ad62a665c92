// See gloo_world.h.
#include "comm/host/gloo_world.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "comm/rendezvous/door.h"
#include "comm/rendezvous/roll_call.h"

namespace shoal {

namespace {

constexpr const char* kFailureKey = "failure";
constexpr const char* kConnecting = "connecting";
constexpr const char* kConnectionsClosed = "or left: its connections are closed";
// An error's message without its place.
std::string problem_of(const Error& error) { return std::string(error.what()).substr(error.place().size() + 3); }
// On the control link.
constexpr int kOpeningTag = 0;  // this rank comes to open a channel
constexpr int kOpenedTag = 1;   // this rank has opened it, or cannot
constexpr auto kProbePeriod = std::chrono::milliseconds(1000);
constexpr Timeout kConnectTimeout = std::chrono::seconds(60);  // what Gloo gets to connect, if the timeout is longer
constexpr Timeout kKnockLimit = std::chrono::seconds(3);       // at doors, when connecting has failed
// How long a report may need to reach the store after the connection was seen to be cut, on a busy machine.
constexpr auto kReportDelay = std::chrono::milliseconds(2000);
// How long a store that does not answer is waited for by who stops: the end comes that much after the timeout.
constexpr Timeout kReportPatience = std::chrono::milliseconds(3000);
// How much later than its own deadline a rank may hear from another that waits as long.
constexpr auto kOpeningGrace = std::chrono::milliseconds(3000);

// Another rank has said why the world ends.
struct Heard {
  Failure failure;
};

}  // namespace

GlooWorld::GlooWorld(const Options& options) : options_(options), reports_(options.store->within(kReportPatience)) {
  const Timeout silence = std::min(timeout(), kMeetingTimeout);
  const auto store = options_.store->within(silence);
  std::string problem;
  const auto deadline = std::chrono::steady_clock::now() + std::min(timeout(), kConnectTimeout);
  try {
    RollCall roll(*store, rank(), size(), silence);
    auto link = begin_connecting("control", Members::all(size(), rank()));
    const auto connected = [&]() -> std::optional<bool> {
      if (link.wait_for(Timeout(0)) != std::future_status::ready) {
        // Gloo tries four times as long.
        if (std::chrono::steady_clock::now() < deadline) return std::nullopt;
        problem = unreachable_peer();
        if (problem.empty()) problem = cause_unconnected_over("Gloo", std::min(timeout(), kConnectTimeout));
        return false;
      }
      try {
        control_ = finish_connecting("control", link);
      } catch (const Error& error) {
        const std::string unreachable = unreachable_peer();
        problem = unreachable.empty() ? problem_of(error) : unreachable;
      }
      return control_ != nullptr;
    };
    const auto verdict = roll.wait(connected, [&] {
      if (const auto written = store->get(kFailureKey)) throw Heard{failure_from_text(*written)};
    });
    if (verdict.all_connected()) return;
    if (!verdict.silent.empty()) problem = cause_silent(verdict.silent, silence);
    if (problem.empty()) problem = fmt::format("rank {} could not connect. Look at its output.", *verdict.lost);
    end_connecting({rank(), kConnecting, problem}, verdict.silent);
  } catch (const Heard& heard) {
    end_connecting(heard.failure, {});
  } catch (const StoreSilent& silent) {
    end_connecting({rank(), kConnecting, cause_store_silent_for(silent.limit)}, {});
  } catch (const Error& error) {
    if (error.place() != kStorePlace) throw;
    const std::string how = problem.empty() ? problem_of(error) : problem;
    end_connecting({rank(), kConnecting, cause_store_gone(-1, how)}, {});
  }
}

// Of those whose doors do not open to this rank the first, said as a cause.
std::string GlooWorld::unreachable_peer() const {
  std::vector<std::string> doors;
  for (const Options::Place& place : options_.places) doors.push_back(place.door);
  const std::vector<std::string> problems = knock(doors, options_.address, std::min(timeout(), kKnockLimit));
  for (size_t peer = 0; peer < problems.size(); ++peer) {
    if (problems[peer].empty() || static_cast<int>(peer) == rank()) continue;
    const Options::Place& place = options_.places[peer];
    return cause_unreachable(static_cast<int>(peer), place.host_name, place.door, options_.address, problems[peer]);
  }
  return "";
}

void GlooWorld::end_connecting(const Failure& failure, const std::vector<int>& silent) {
  throw error_of(fail(failure, silent), rank(), kConnecting);
}

// On a thread that nobody waits for: Gloo tries to reach a dead rank four times, each until its own timeout, and cannot
// be told to stop. The thread holds all that it needs.
std::future<std::shared_ptr<GlooLink>> GlooWorld::begin_connecting(const std::string& id,
                                                                   const Members& members) const {
  const GlooOptions gloo{members.rank(), members.size(), std::min(timeout(), kConnectTimeout), options_.address,
                         options_.interface};
  std::packaged_task<std::shared_ptr<GlooLink>()> task([store = options_.store, id, gloo, ranks = members.ranks()] {
    return GlooLink::connect(*store, "gloo/" + id, gloo, ranks);
  });
  auto link = task.get_future();
  std::thread(std::move(task)).detach();
  return link;
}

std::shared_ptr<GlooLink> GlooWorld::finish_connecting(const std::string& id,
                                                       std::future<std::shared_ptr<GlooLink>>& future) {
  try {
    auto link = future.get();
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

GlooWorld::Channel GlooWorld::open(const std::string& name, const Members& members) {
  // Of two ranks the one that is late is the other. Among more it may itself wait for a third, within one collective
  // too: what one rank has, another may still lack.
  if (size() > 2 && !reports_waits_.exchange(true)) {
    wait_reports_ = std::make_unique<WaitReports>(*reports_, rank(), [this] { return waits(); });
  }
  const std::string key = members.channel_key(name);
  Channel channel;
  {
    const std::lock_guard lock(mutex_);
    channel.id = fmt::format("channel/{}/{}", key, channels_opened_[key]++);
  }
  const std::string at = "opening " + channel.id;
  if (auto known = failure()) throw error_of(*known, rank(), at);
  // Gloo would wait for a dead rank until the timeout; a connection that exists tells at once.
  exchange_on_control(members, kOpeningTag, 1, std::chrono::steady_clock::now() + timeout(), at);
  // Gloo does not say whose connection failed, nor soon. If a rank is gone, so is its connection of the control link.
  const auto check_control = [&](Timeout patience) {
    const int gone = find_gone_peer(patience);
    if (gone < 0) return;
    const LinkBroken broken(LinkBroken::How::closed, gone, "its connections are closed");
    throw error_of(settle(broken, {"control", control_}, at), rank(), at);
  };
  // All ranks are here, so they wait equally long for one that hangs while it connects.
  const auto deadline = std::chrono::steady_clock::now() + timeout();
  auto link = begin_connecting(channel.id, members);
  while (link.wait_for(kProbePeriod) != std::future_status::ready && std::chrono::steady_clock::now() < deadline) {
    check_control(Timeout(0));
  }
  std::optional<Error> problem;
  if (link.wait_for(Timeout(0)) != std::future_status::ready) {
    problem.emplace(fmt::format("comm rank {}", rank()),
                    fmt::format("{}: {}", at, cause_unconnected_over("Gloo", timeout())));
  } else {
    try {
      channel.link = finish_connecting(channel.id, link);
    } catch (const Error& error) {
      check_control(kReportDelay);
      problem = error;
    }
  }
  // Each says how connecting ended for it: who says nothing is the one that hangs.
  const std::vector<char> opened =
      exchange_on_control(members, kOpenedTag, problem ? 0 : 1, deadline + kOpeningGrace, at);
  if (problem) throw *problem;
  for (const int peer : members.ranks()) {
    if (peer == rank() || opened[peer] != 0) continue;
    throw error_of(fail({rank(), at, fmt::format("rank {} could not connect. Look at its output.", peer)}), rank(), at);
  }
  return channel;
}

// Sends a byte to each of the others and returns theirs, by rank of the world.
std::vector<char> GlooWorld::exchange_on_control(const Members& members, int tag, char own, Deadline deadline,
                                                 const std::string& at) {
  const std::lock_guard lock(control_mutex_);
  std::vector<char> heard(static_cast<size_t>(size()));
  std::vector<Transfer> sends, receives;
  for (const int peer : members.ranks()) {
    if (peer == rank()) continue;
    sends.push_back({peer, &own, 1, tag});
    receives.push_back({peer, &heard[peer], 1, tag});
  }
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
  return heard;
}

int GlooWorld::find_gone_peer(Timeout patience) {
  for (const auto deadline = std::chrono::steady_clock::now() + patience;;) {
    for (int peer = 0; peer < size(); ++peer) {
      if (peer != rank() && control_->is_closed(peer)) return peer;
    }
    if (std::chrono::steady_clock::now() >= deadline) return -1;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

void GlooWorld::leave(const Channel& channel) noexcept {
  try {
    reports_->set(fmt::format("left/{}/{}", channel.id, rank()), "left");
  } catch (const std::exception&) {
    // The store is gone, and with it whoever might have read this.
  }
  channel.link->close();
}

std::optional<Failure> GlooWorld::failure() {
  const std::lock_guard lock(mutex_);
  return failure_;
}

std::optional<Failure> GlooWorld::ask_for_failure() {
  {
    const auto now = std::chrono::steady_clock::now();
    const std::lock_guard lock(mutex_);
    if (failure_ || now < next_question_) return failure_;
    next_question_ = now + kProbePeriod;
  }
  try {
    const auto written = reports_->get(kFailureKey);
    if (!written) return std::nullopt;
    reports_->set(fmt::format("heard/{}", rank()), "heard");
    return failure_from_text(*written);
  } catch (const Error&) {
    return std::nullopt;  // the store is gone; with whom, the connections say
  }
}

std::string GlooWorld::ask_for_gone_peer() {
  {
    const auto now = std::chrono::steady_clock::now();
    const std::lock_guard lock(mutex_);
    if (now < next_probe_) return "";
    next_probe_ = now + kProbePeriod;
  }
  const int gone = find_gone_peer(Timeout(0));
  return gone < 0 ? "" : cause_died(gone, kConnectionsClosed);
}

bool GlooWorld::is_gone(int peer) { return control_ && peer != rank() && peer < size() && control_->is_closed(peer); }

Failure GlooWorld::fail(const Failure& failure, const std::vector<int>& gone, Timeout patience) {
  Failure first = failure;
  try {
    for (const int peer : gone) reports_->set(fmt::format("gone/{}", peer), "gone");
    first = failure_from_text(reports_->set_once(kFailureKey, to_text(failure)));
    reports_->set(fmt::format("heard/{}", rank()), "heard");
  } catch (const StoreSilent& silent) {
    // Whom this rank waits for may itself wait for the one that serves the store.
    const std::string host = fmt::format("rank {} ", options_.store_host);
    const bool by_another = options_.store_host >= 0 && options_.store_host != rank();
    if (by_another && first.cause.find(host) == std::string::npos) {
      first.cause += " " + cause_store_silent_for(silent.limit);
    }
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
  if (rank() == options_.store_host) wait_until_heard(patience);
  return first;
}

// The store ends with this process, which may be about to end: the others get a moment to read why.
void GlooWorld::wait_until_heard(Timeout patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  try {
    for (int peer = 0; peer < size(); ++peer) {
      if (reports_->get(fmt::format("gone/{}", peer))) continue;
      wait_for_key(*reports_, fmt::format("heard/{}", peer), deadline);
    }
  } catch (const Error&) {
    // Nobody can read it any more.
  }
}

// `peer` is gone too; -1: none is known to be.
std::string GlooWorld::cause_store_gone(int peer, const std::string& how) const {
  if (options_.store_host < 0 && peer < 0) return "the rendezvous store is gone, and with it the launcher: " + how;
  if (options_.store_host < 0) return cause_died(peer, how);
  const std::string other = peer < 0 || peer == options_.store_host ? "" : fmt::format(", and so is rank {}", peer);
  return cause_died(options_.store_host,
                    fmt::format("or left: the rendezvous store that it served is gone{}; {}", other, how));
}

std::string GlooWorld::cause_store_silent_for(Timeout limit) const {
  return cause_store_silent(options_.store_host < 0 ? "the launcher" : fmt::format("rank {}", options_.store_host),
                            limit);
}

std::string GlooWorld::cause_of(const LinkBroken& broken, const Channel& channel) {
  if (broken.how == LinkBroken::How::late) {
    const std::vector<int> missing{broken.peer};
    return cause_late(missing, timeout(), reports_waits_ ? to_blame_by_reports(*reports_, missing) : missing);
  }
  // Whoever stops in order says so first and cuts the connection then, but the two travel separately.
  const auto deadline = std::chrono::steady_clock::now() + kReportDelay;
  const bool closed = broken.how == LinkBroken::How::closed;
  const std::string left_key = fmt::format("left/{}/{}", channel.id, broken.peer);
  for (;;) {
    try {
      if (const auto written = reports_->get(kFailureKey)) return failure_from_text(*written).cause;
      if (reports_->get(left_key)) return cause_left(broken.peer);
    } catch (const StoreSilent& silent) {
      // A rank that hangs makes others stop, and their connections are cut first; its own it keeps.
      if (options_.store_host < 0 || (closed && broken.peer == options_.store_host))
        return cause_died(broken.peer, broken.what());
      if (is_gone(options_.store_host)) return cause_died(options_.store_host, kConnectionsClosed);
      return cause_store_silent_for(silent.limit);
    } catch (const Error&) {
      return cause_store_gone(broken.peer, broken.what());
    }
    if (std::chrono::steady_clock::now() >= deadline) return cause_died(broken.peer, broken.what());
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

ProgressReports* GlooWorld::progress() {
  const std::lock_guard lock(mutex_);
  if (!progress_) {
    ProgressReports::Options options;
    options.rank = rank();
    options.timeout = timeout();
    options.store = reports_;
    options.store_server = options_.store_host < 0 ? "the launcher" : fmt::format("rank {}", options_.store_host);
    options.other_path = [this](const std::string& at, const std::string& cause) { fail({rank(), at, cause}); };
    progress_ = std::make_unique<ProgressReports>(std::move(options));
  }
  return progress_.get();
}

std::vector<WaitReports::Wait> GlooWorld::waits() {
  std::vector<WaitReports::Wait> found;
  const std::lock_guard lock(mutex_);
  for (const auto& weak : links_) {
    const auto link = weak.lock();
    if (!link) continue;
    if (const auto wait = link->awaited()) found.push_back(*wait);
  }
  return found;
}

Failure GlooWorld::settle(const LinkBroken& broken, const Channel& channel, const std::string& at) {
  if (auto known = failure()) return *known;
  std::vector<int> gone;
  if (broken.how == LinkBroken::How::closed) gone.push_back(broken.peer);
  return fail({rank(), at, cause_of(broken, channel)}, gone);
}

namespace {

class FateOfGloo final : public Fate {
 public:
  explicit FateOfGloo(std::shared_ptr<GlooWorld> world) : world_(std::move(world)) {}

  Timeout timeout() const override { return world_->timeout(); }
  std::optional<Failure> failure() override {
    const std::lock_guard lock(mutex_);
    if (!heard_) heard_ = world_->ask_for_failure();
    return heard_;
  }
  std::string dead_peer() override { return world_->ask_for_gone_peer(); }
  void fail(const Failure& failure) override { world_->fail(failure); }
  ProgressReports* progress() override { return world_->progress(); }

 private:
  std::shared_ptr<GlooWorld> world_;  // shared with the carriers
  std::mutex mutex_;
  std::optional<Failure> heard_;  // the world is not asked at every look
};

}  // namespace

std::shared_ptr<Fate> fate_of(std::shared_ptr<GlooWorld> world) {
  return std::make_shared<FateOfGloo>(std::move(world));
}

}  // namespace shoal
