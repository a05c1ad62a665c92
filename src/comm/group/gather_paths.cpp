// See gather_paths.h.
#include "comm/group/gather_paths.h"

#include <algorithm>
#include <map>

namespace shoal {

namespace {

using Hosts = std::map<int, std::vector<int>>;  // the ranks on each

Hosts hosts_of(const std::vector<int>& host_of) {
  Hosts hosts;
  for (size_t rank = 0; rank < host_of.size(); ++rank) hosts[host_of[rank]].push_back(static_cast<int>(rank));
  return hosts;
}

// Who on `there` takes the strip of `owner`, the how many-eth rank of its own host.
int taker(const std::vector<int>& there, const std::vector<int>& owners_host, int owner) {
  const auto place = std::find(owners_host.begin(), owners_host.end(), owner) - owners_host.begin();
  return there[static_cast<size_t>(place) % there.size()];
}

}  // namespace

GatherPaths gather_paths(const std::vector<int>& host_of, int rank) {
  const Hosts hosts = hosts_of(host_of);
  const int here = host_of.at(static_cast<size_t>(rank));
  const std::vector<int>& neighbours = hosts.at(here);
  GatherPaths paths;
  paths.from.resize(host_of.size());
  paths.pass_on.resize(host_of.size());
  for (int owner = 0; owner < static_cast<int>(host_of.size()); ++owner) {
    const auto index = static_cast<size_t>(owner);
    if (host_of[index] == here) {
      paths.from[index] = owner;
      continue;
    }
    const int first = taker(neighbours, hosts.at(host_of[index]), owner);
    paths.from[index] = first == rank ? owner : first;
    if (first != rank) continue;
    for (const int neighbour : neighbours) {
      if (neighbour != rank) paths.pass_on[index].push_back(neighbour);
    }
  }
  for (const auto& [host, ranks] : hosts) {
    if (host == here) {
      for (const int neighbour : neighbours) {
        if (neighbour != rank) paths.to.push_back(neighbour);
      }
    } else {
      paths.to.push_back(taker(ranks, neighbours, rank));
    }
  }
  return paths;
}

bool some_host_has_several(const std::vector<int>& host_of) {
  const Hosts hosts = hosts_of(host_of);
  return hosts.size() > 1 &&
         std::any_of(hosts.begin(), hosts.end(), [](const auto& host) { return host.second.size() > 1; });
}

}  // namespace shoal
