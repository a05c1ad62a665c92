// One of the engine's channels: notes between ranks in host memory, and bytes of the model where the model lives.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "device/queue.h"
#include "shoal/collective_record.h"
#include "shoal/group.h"

namespace shoal {

class Channel {
 public:
  // Every rank opens it. The queue is the one on which the rank computes; whoever waits for it learns when the
  // channel's collectives cannot end.
  // `reduce`: who adds, where NCCL carries.
  Channel(Group& world, const std::string& name, Queue& queue, Reduce reduce = Reduce::exact);

  Group& notes() const { return *notes_; }
  Group& bytes() const { return bytes_ ? *bytes_ : *notes_; }
  // The queue on which its collectives leave their results.
  Queue& queue() const { return *queue_; }

  Traffic traffic() const;
  void log_collectives(bool on) const;
  std::vector<CollectiveRecord> take_collectives() const;
  // The rank's threads.
  double waited_seconds() const;
  // That collectives were under way, in host memory; nothing is said of a GPU's.
  double carried_seconds() const;
  // Its GPU, beside that.
  double held_seconds() const;

 private:
  std::unique_ptr<Queue> queue_;  // the groups end first: until then their workers may use it
  std::unique_ptr<Group> notes_;
  std::unique_ptr<Group> bytes_;  // null in host memory, where one channel does for both
};

}  // namespace shoal
