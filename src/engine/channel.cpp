// See channel.h.
#include "engine/channel.h"

#include "comm/group/full_group.h"
#include "device/cuda_queue.h"
#include "device/host_queue.h"

namespace shoal {

Channel::Channel(Group& world, const std::string& name, Queue& queue) : notes_(world.channel(name)) {
  if (queue.device() < 0) {
    queue_ = make_host_queue();
    return;
  }
  bytes_ = full(world).device_channel(name, queue.device(), queue.stream());
  queue_ = make_cuda_queue(queue.device(), full(*bytes_).stream());
  queue.heed(full(*bytes_).alarm());
  queue_->heed(full(*bytes_).alarm());
}

double Channel::held_seconds() const { return bytes_ ? full(*bytes_).held_seconds() : 0.0; }

Traffic Channel::traffic() const {
  Traffic sum = notes_->traffic();
  if (!bytes_) return sum;
  const Traffic more = bytes_->traffic();
  return {sum.sent_nbytes + more.sent_nbytes, sum.received_nbytes + more.received_nbytes,
          sum.collectives + more.collectives};
}

double Channel::waited_seconds() const {
  return full(*notes_).waited_seconds() + (bytes_ ? full(*bytes_).waited_seconds() : 0.0);
}

}  // namespace shoal
