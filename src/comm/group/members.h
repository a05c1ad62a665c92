// Which ranks of a world a group has, and which of them this rank is. A group counts its ranks from 0; messages and all
// that ranks keep about each other use their numbers in the world.
#pragma once

#include <string>
#include <vector>

namespace shoal {

class Members {
 public:
  // All ranks of a world. `hosts`: the number of the host on which each stands; empty: all on one.
  static Members all(int world, int rank, std::vector<int> hosts = {});
  // Some of them, in this order; this rank is number `own` in the world. `name` is the part's in messages.
  Members(std::vector<int> ranks, int own, std::string name, std::vector<int> hosts = {});

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(ranks_.size()); }
  // The number in the world of this rank, or of rank `rank` of the group.
  int global() const { return global(rank_); }
  int global(int rank) const { return ranks_.at(static_cast<size_t>(rank)); }
  const std::vector<int>& ranks() const { return ranks_; }
  bool are_a_part() const { return are_a_part_; }
  // Of all ranks of the world, by their numbers there.
  const std::vector<int>& hosts() const { return hosts_; }
  // Whether rank `rank` of the group stands on another host than rank `from` of it.
  bool is_elsewhere(int rank, int from) const;

  // What a channel of theirs is called in messages: "weights", or "weights of shard" in a part.
  std::string channel_name(const std::string& channel) const;
  // What tells their channels of that name from those of other ranks.
  std::string channel_key(const std::string& channel) const;

 private:
  std::vector<int> ranks_;
  int rank_ = 0;
  std::string name_;
  std::vector<int> hosts_;
  bool are_a_part_ = true;
};

// "{0 2}".
std::string to_text(const std::vector<int>& ranks);

}  // namespace shoal
