// See channel.h.
#include "engine/channel.h"

#include "comm/group/full_group.h"
#include "device/cuda_queue.h"
#include "device/host_queue.h"
#include "shoal/error.h"

namespace shoal {

Channel::Channel(Group& world, const std::string& name, Queue& queue, Reduce reduce) : notes_(world.channel(name)) {
  if (queue.device() < 0) {
    const std::string problem = full(world).why_no_host_memory();
    if (!problem.empty()) throw Error("config shoal.transport", problem);
    queue_ = make_host_queue();
    return;
  }
  bytes_ = full(world).device_channel(name, queue.device(), queue.stream(), reduce);
  queue_ = make_cuda_queue(queue.device(), full(*bytes_).stream());
  queue.heed(full(*bytes_).alarm());
  queue_->heed(full(*bytes_).alarm());
}

double Channel::carried_seconds() const { return bytes_ ? 0.0 : full(*notes_).carried_seconds(); }

double Channel::held_seconds() const { return bytes_ ? full(*bytes_).held_seconds() : 0.0; }

Traffic Channel::traffic() const {
  Traffic sum = notes_->traffic();
  if (!bytes_) return sum;
  sum += bytes_->traffic();
  return sum;
}

void Channel::log_collectives(bool on) const {
  full(*notes_).log_collectives(on);
  if (bytes_) full(*bytes_).log_collectives(on);
}

std::vector<CollectiveRecord> Channel::take_collectives() const {
  std::vector<CollectiveRecord> records = full(*notes_).take_collectives();
  if (!bytes_) return records;
  for (CollectiveRecord& record : full(*bytes_).take_collectives()) records.push_back(std::move(record));
  return records;
}

double Channel::waited_seconds() const {
  return full(*notes_).waited_seconds() + (bytes_ ? full(*bytes_).waited_seconds() : 0.0);
}

}  // namespace shoal
