// Carries the notes of progress_note.h between ranks, through the store, in a thread of its own; knows for each rank
// how long nothing was heard of it; and says whom to blame. One a process and world, made when the first link is
// opened.
//   progress/<rank>   the text of its note, written anew at each beat
// While nothing is stuck a rank reads the note of one other, its neighbour on each link: ranks on different paths whose
// bytes happen to fit are found so, within some beats. While something is, it reads those of all.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "comm/failure/progress_note.h"
#include "comm/rendezvous/key_store.h"

namespace shoal {

class ProgressReports {
 public:
  struct Options {
    int rank = 0;
    Timeout timeout = kDefaultTimeout;
    std::shared_ptr<KeyStore> store;      // answers, or fails, within seconds
    std::string store_server = "rank 0";  // who serves it, for messages
    // Called once, from the thread, when a rank is found on another path: what this rank is at, and the cause.
    std::function<void(const std::string& at, const std::string& cause)> other_path;
  };

  // What one link of this rank notes. All may be called from any thread.
  class Link {
   public:
    Link(uint64_t number, std::string channel, std::vector<int> members);
    // Given to the stream.
    void issue(const IssuedCollective& collective);
    // The oldest that is not over, and whether it has begun; 0: none.
    void set_under_way(uint64_t sequence, bool begun);
    void leave();

    LinkNote note() const;
    const std::vector<int>& members() const { return members_; }

   private:
    const std::vector<int> members_;
    mutable std::mutex mutex_;
    LinkNote note_;
  };

  explicit ProgressReports(Options options);
  ~ProgressReports();  // reports once more
  ProgressReports(const ProgressReports&) = delete;
  ProgressReports& operator=(const ProgressReports&) = delete;

  std::shared_ptr<Link> open(uint64_t number, const std::string& channel, const std::vector<int>& members);

  // Whom to blame for the collective of that number, said as a cause; empty: nobody is known to be. Asks the store what
  // is not known, for some seconds at most.
  std::string cause(const Link& link, uint64_t sequence);

 private:
  struct Heard {
    std::optional<ProgressNote> note;
    std::chrono::steady_clock::time_point since{};  // when its beat was seen to change
  };
  void run();
  void report();
  void read(const std::vector<int>& ranks);
  void look_at_neighbours();
  std::vector<std::shared_ptr<Link>> links() const;
  std::map<int, HeardRank> heard_now() const;

  const Options options_;
  const std::chrono::milliseconds period_;
  std::mutex store_mutex_;    // one reads at a time
  mutable std::mutex mutex_;  // of what follows
  std::condition_variable stopping_;
  bool stopped_ = false;
  bool told_other_path_ = false;
  std::map<uint64_t, uint64_t> seen_under_way_;  // by link, at the last look
  std::vector<std::shared_ptr<Link>> links_;     // shared with carriers
  std::map<int, Heard> heard_;
  std::optional<std::chrono::steady_clock::time_point> store_silent_since_;
  uint64_t beat_ = 0;
  std::thread thread_;
};

}  // namespace shoal
