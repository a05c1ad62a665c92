// Ranks that talk to each other. A Group is one ordered channel of collectives over all ranks of a world or some of
// them: calls return at once, run in the order they were issued, and must be issued in the same order on every rank.
// Where the bytes travel (same process, shared memory, Gloo, NCCL) is the transport's affair; the results are the same
// bits. Groups come from the functions at the end of this file, and from channel() and split(); a program cannot write
// its own, for the engine asks more of a group than stands here.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "shoal/collectives.h"
#include "shoal/transport.h"

namespace shoal {

struct Config;

// Ranks of a group in parts, each by its number in the world, in the order in which the part's group will count them.
using Parts = std::vector<std::vector<int>>;

class Group {
 public:
  virtual ~Group() = default;  // communicates nothing; peers that still wait are told that this rank left

  // This rank's place in the group, and how many there are.
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // The numbers in the world of the group's ranks, in the order of the group. Messages name ranks by them.
  virtual const std::vector<int>& members() const = 0;

  virtual Handle all_gather(AllGather args) = 0;
  virtual Handle reduce_scatter(ReduceScatter args) = 0;
  virtual Handle all_reduce(AllReduce args) = 0;
  virtual Handle broadcast(Broadcast args) = 0;
  virtual Handle exchange(Exchange args) = 0;
  virtual Handle barrier(Subject subject) = 0;

  // Another ordered channel over the same ranks, independent of this one. Every rank calls it, in the same order.
  virtual std::unique_ptr<Group> channel(const std::string& name) = 0;

  // The group of the part that this rank stands in. Every rank of this group calls it, in the same order and with the
  // same parts, which hold each of them once; anything else is an error. The new group shares this one's worker, so
  // that its collectives and this one's run in the order in which they were issued; a channel of it is independent.
  virtual std::unique_ptr<Group> split(const std::string& name, const Parts& parts) = 0;

  // Tells every rank of the world to stop waiting and throw `reason`; for a rank that failed and cannot go on.
  virtual void abort(const std::string& reason) = 0;

  virtual Traffic traffic() const = 0;
  // "threads", "shared memory", "gloo" or "one rank"; of memory of GPUs "GPU, " and how its bytes travel.
  virtual std::string transport_name() const = 0;

 private:
  Group() = default;
  friend class FullGroup;  // the library's own groups
};

using Timeout = std::chrono::milliseconds;
inline constexpr Timeout kDefaultTimeout = std::chrono::minutes(10);

// A world of one rank.
std::unique_ptr<Group> make_single_group();

// `size` ranks as threads of this process: element r belongs to the thread that plays rank r. `hosts`: the number of
// the host on which each is to count as standing, for traffic and for meshes that follow hosts; empty: all on one.
std::vector<std::unique_ptr<Group>> make_thread_groups(int size, Timeout timeout = kDefaultTimeout,
                                                       const std::vector<int>& hosts = {});

struct ProcessGroupOptions {
  Transport transport = Transport::automatic;
  Timeout timeout = kDefaultTimeout;
};

// What a config says of the transport and the timeout.
ProcessGroupOptions process_group_options(const Config& config);

// The number of ranks that the environment of torchrun, mpirun or srun names; a config needs it before ranks meet.
int world_size_of_environment();

// Joins the world described by the environment of torchrun, mpirun or srun. Blocks until all ranks are there.
std::unique_ptr<Group> make_process_group(const ProcessGroupOptions& options = {});

}  // namespace shoal
