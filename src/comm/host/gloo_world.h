// What ranks connected by Gloo share as one world: its links, and the failure that ends them all. Gloo only says that
// a connection broke; who is to blame is settled through the store, where each rank writes why it stops before it
// cuts its own connections. One a process and world; the carriers of its channels share it.
#pragma once

#include <atomic>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "comm/failure/fate.h"
#include "comm/failure/progress_reports.h"
#include "comm/failure/wait_reports.h"
#include "comm/group/members.h"
#include "comm/host/gloo_link.h"
#include "comm/rendezvous/c10d_store.h"

namespace shoal {

class GlooWorld {
 public:
  struct Options {
    int rank = 0;
    int size = 1;
    Timeout timeout = kDefaultTimeout;
    std::shared_ptr<C10dStore> store;  // of this world alone
    int store_host = 0;                // the rank whose process serves the store; -1: none of them
    std::string address;
    std::string interface;
    std::vector<int> hosts = {};  // as Members has them
    // Of each rank: its host, by any number and by name, and its door (door.h). Empty: all are on one host.
    struct Place {
      int host = 0;
      std::string host_name, door;
    };
    std::vector<Place> places = {};
  };
  // Blocks until all ranks are connected; throws an error that names a rank which falls silent meanwhile.
  explicit GlooWorld(const Options& options);

  int rank() const { return options_.rank; }
  int size() const { return options_.size; }
  Timeout timeout() const { return options_.timeout; }
  const std::vector<int>& hosts() const { return options_.hosts; }
  // By which ways bytes had best go; what counts as a host is hosts().
  int host_of(int rank) const {
    return options_.places.empty() ? 0 : options_.places.at(static_cast<size_t>(rank)).host;
  }

  // One channel's connections.
  struct Channel {
    std::string id;  // name and how many came before it
    std::shared_ptr<GlooLink> link;
  };
  // The next channel of that name for these ranks; blocks until each of them opens it.
  Channel open(const std::string& name, const Members& members);
  // This rank leaves the channel: says so to those who will find the connection cut, and cuts it.
  void leave(const Channel& channel) noexcept;

  std::optional<Failure> failure();
  // The same, asking the store where this rank does not know; at most once a second.
  std::optional<Failure> ask_for_failure();
  // A rank whose connections are cut, said as a cause; empty where none is, or where it is too soon to ask again.
  std::string ask_for_gone_peer();
  // How far ranks are with collectives on GPUs.
  ProgressReports* progress();
  // Makes this the failure of the world unless another rank was first, cuts all connections of this rank, and returns
  // the one that counts. The rank that serves the store stays until the others have heard of it, all but those `gone`.
  Failure fail(const Failure& failure, const std::vector<int>& gone = {}, Timeout patience = kHearingDelay);
  // The same for a broken link, having found out what it means.
  Failure settle(const LinkBroken& broken, const Channel& channel, const std::string& at);

 private:
  // How long the rank that serves the store lets the others read in it why the world ended.
  static constexpr Timeout kHearingDelay = std::chrono::milliseconds(5000);

  // What ranks tell each other on the control link when a channel is opened.
  std::vector<char> exchange_on_control(const Members& members, int tag, char own, Deadline deadline,
                                        const std::string& at);
  std::future<std::shared_ptr<GlooLink>> begin_connecting(const std::string& id, const Members& members) const;
  std::shared_ptr<GlooLink> finish_connecting(const std::string& id, std::future<std::shared_ptr<GlooLink>>& link);
  std::string unreachable_peer() const;
  [[noreturn]] void end_connecting(const Failure& failure, const std::vector<int>& silent);
  std::string cause_of(const LinkBroken& broken, const Channel& channel);
  std::vector<WaitReports::Wait> waits();
  void wait_until_heard(Timeout patience);
  int find_gone_peer(Timeout patience);  // -1: all connections of the control link hold
  bool is_gone(int peer);
  std::string cause_store_gone(int peer, const std::string& how) const;
  std::string cause_store_silent_for(Timeout limit) const;

  Options options_;
  std::shared_ptr<C10dStore> reports_;  // the same store; who stops does not wait long for it
  std::mutex mutex_;                    // of what follows
  std::optional<Failure> failure_;
  std::vector<std::weak_ptr<GlooLink>> links_;
  std::map<std::string, int> channels_opened_;
  Deadline next_question_{}, next_probe_{};  // of those that are asked again and again
  std::mutex control_mutex_;                 // of an exchange on it
  std::shared_ptr<GlooLink> control_;        // on which ranks wait for each other to open a channel
  std::atomic<bool> reports_waits_{false};
  std::unique_ptr<WaitReports>
      wait_reports_;  // of more than two ranks, from the first channel on; ends before what it asks
  std::unique_ptr<ProgressReports> progress_;  // once it is asked for; ends first
};

std::shared_ptr<Fate> fate_of(std::shared_ptr<GlooWorld> world);

}  // namespace shoal
