// The collectives that a rank took part in, one by one, for whoever asks where communication goes. Off until somebody
// does; who switched it on takes what is there now and then.
#pragma once

#include <atomic>
#include <mutex>
#include <vector>

#include "comm/group/ticket.h"
#include "shoal/collective_record.h"

namespace shoal {

class CollectiveLog {
 public:
  void switch_to(bool on) { on_ = on; }
  bool is_on() const { return on_; }
  // From the worker of a channel; -1 seconds: not known.
  void add(const Ticket& ticket, double seconds);
  // What came since the last time, in the order in which it ended.
  std::vector<CollectiveRecord> take();

 private:
  std::atomic<bool> on_ = false;
  std::mutex mutex_;
  std::vector<CollectiveRecord> records_;
};

}  // namespace shoal
