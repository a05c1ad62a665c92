// By which ways the strips of an all-gather reach every rank where ranks stand on several hosts: each strip crosses to
// a host once, to one of its ranks, which passes it on to the others there. Sent to each rank by itself, it would cross
// once a rank, and what is between hosts is slow. Pure; a carrier that sends point to point follows it.
#pragma once

#include <vector>

namespace shoal {

struct GatherPaths {
  std::vector<int> to;                    // whom this rank sends its own strip
  std::vector<int> from;                  // by owner: who brings its strip to this rank; the own: this rank
  std::vector<std::vector<int>> pass_on;  // by owner: whom this rank sends the strip once it is here
};

// `host_of`: the host of each rank, by any numbers. Owners of one host share the work of the ranks of another.
GatherPaths gather_paths(const std::vector<int>& host_of, int rank);

// Whether strips take two steps anywhere in such a group: the same on every rank.
bool some_host_has_several(const std::vector<int>& host_of);

}  // namespace shoal
