// See peer_record.h.
#include "comm/world/peer_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <map>
#include <sstream>
#include <string_view>

#include "base/check.h"
#include "base/text.h"
#include "comm/host/peer_memory.h"
#include "shoal/error.h"

namespace shoal {

namespace {

// A word that stands for itself between spaces, and back.
std::string word(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return std::isspace(static_cast<unsigned char>(c)); }, '_');
  return text.empty() ? "-" : text;
}
std::string text_of(const std::string& word) { return word == "-" ? "" : word; }

std::string on_host(const PeerRecord& record) {
  return record.host.empty() ? record.address : fmt::format("{}, {}", record.host, record.address);
}

bool is_loopback(const PeerRecord& record) { return record.address.rfind("127.", 0) == 0 || record.address == "::1"; }

}  // namespace

// Text := world " " wanted " " boot_id " " pid " " probe_fd " " token " " address " " interface " " host " " door " "
// run " " said_host.
std::string to_text(const PeerRecord& r) {
  return fmt::format("{} {} {} {} {} {} {} {} {} {} {} {}", r.world, static_cast<int>(r.wanted), word(r.boot_id), r.pid,
                     r.probe_fd, r.token, word(r.address), word(r.interface), word(r.host), word(r.door), word(r.run),
                     word(r.said_host));
}

PeerRecord peer_record_from_text(const std::string& text) {
  std::istringstream in(text);
  PeerRecord record;
  int wanted = 0;
  in >> record.world >> wanted >> record.boot_id >> record.pid >> record.probe_fd >> record.token >> record.address >>
      record.interface >> record.host >> record.door >> record.run >> record.said_host;
  SHOAL_CHECK(!in.fail(), "not a peer record: {}", text);
  for (std::string* each : {&record.interface, &record.host, &record.door, &record.run, &record.said_host})
    *each = text_of(*each);
  record.wanted = static_cast<Transport>(wanted);
  return record;
}

std::string host_said(const char* hosts, int world, int rank) {
  if (hosts == nullptr || std::string_view(hosts).empty()) return "";
  std::vector<std::string> names;
  std::istringstream in{std::string(hosts)};
  for (std::string name; std::getline(in, name, ',');) {
    if (name.empty() || name == "-" || name.find_first_of(" \t\n") != std::string::npos) {
      throw Error("comm SHOAL_HOSTS",
                  fmt::format("\"{}\" has an entry that is no name. Give a host for each rank, as in "
                              "0,0,1,1.",
                              hosts));
    }
    names.push_back(name);
  }
  if (names.size() != static_cast<size_t>(world)) {
    throw Error("comm SHOAL_HOSTS",
                fmt::format("\"{}\" names the hosts of {} ranks, and there are {}. Give one for each "
                            "rank, as in 0,0,1,1, or unset it.",
                            hosts, names.size(), world));
  }
  return names[static_cast<size_t>(rank)];
}

std::string difference(const PeerRecord& peer, int peer_rank, const PeerRecord& own, int own_rank) {
  if (peer.world != own.world) {
    return fmt::format(
        "rank {} ({}) was started for a world of {} and rank {} ({}) for one of {}. Start all ranks with the "
        "same WORLD_SIZE.",
        peer_rank, on_host(peer), peer.world, own_rank, on_host(own), own.world);
  }
  if (!peer.run.empty() && !own.run.empty() && peer.run != own.run) {
    return fmt::format(
        "rank {} ({}) is of another run, {}, and this rank of {}. Give each run a MASTER_PORT of its own; "
        "ranks of one run may be given the same SHOAL_RUN_ID.",
        peer_rank, on_host(peer), peer.run, own.run);
  }
  if (peer.wanted != own.wanted) {
    return fmt::format(
        "rank {} wants transport {} and this rank {}. Give SHOAL_TRANSPORT and the config the same value "
        "on all ranks.",
        peer_rank, name_of(peer.wanted), name_of(own.wanted));
  }
  return "";
}

void check_one_world(const std::vector<PeerRecord>& records, int rank) {
  for (size_t peer = 0; peer < records.size(); ++peer) {
    const std::string how =
        difference(records[peer], static_cast<int>(peer), records.at(static_cast<size_t>(rank)), rank);
    if (!how.empty()) throw Error(fmt::format("comm rank {}", rank), how);
  }
}

bool same_host(const std::vector<PeerRecord>& records) {
  for (const PeerRecord& record : records) {
    if (record.boot_id == "-" || record.boot_id != records.front().boot_id) return false;
  }
  return true;
}

// Kernels of different boots are of different hosts; where that is not known, addresses tell them apart.
std::vector<int> hosts_of(const std::vector<PeerRecord>& records) {
  std::map<std::string, int> numbers;
  std::vector<int> hosts;
  for (const PeerRecord& record : records) {
    const std::string name = record.boot_id == "-" ? record.address : record.boot_id;
    hosts.push_back(numbers.emplace(name, static_cast<int>(numbers.size())).first->second);
  }
  return hosts;
}

std::vector<int> counted_hosts(const std::vector<PeerRecord>& records) {
  std::map<std::string, int> numbers;
  std::vector<int> hosts;
  for (const PeerRecord& record : records) {
    // A kernel that does not say which it is may be any.
    const std::string known = record.boot_id == "-" ? "at " + record.address : record.boot_id;
    const std::string& name = record.said_host.empty() ? known : record.said_host;
    hosts.push_back(numbers.emplace(name, static_cast<int>(numbers.size())).first->second);
  }
  return numbers.size() > 1 ? hosts : std::vector<int>{};
}

std::string say_hosts(const std::vector<PeerRecord>& records, const std::string& transport, const std::string& store) {
  constexpr size_t kMostHosts = 8;
  const std::vector<int> host_of = hosts_of(records);
  const size_t hosts = static_cast<size_t>(*std::max_element(host_of.begin(), host_of.end())) + 1;
  std::vector<std::string> parts;
  for (size_t host = 0; host < std::min(hosts, kMostHosts); ++host) {
    std::vector<std::string> ranks;
    const PeerRecord* first = nullptr;
    for (size_t rank = 0; rank < records.size(); ++rank) {
      if (host_of[rank] != static_cast<int>(host)) continue;
      if (first == nullptr) first = &records[rank];
      ranks.push_back(std::to_string(rank));
    }
    parts.push_back(fmt::format("{} {} on {} at {} ({})", ranks.size() == 1 ? "rank" : "ranks", join(ranks, ", "),
                                first->host.empty() ? "a host" : first->host, first->address,
                                first->interface.empty() ? "no interface has it" : first->interface));
  }
  if (hosts > kMostHosts) parts.push_back(fmt::format("and {} hosts more", hosts - kMostHosts));
  return fmt::format("{} ranks on {} host{}, over {}, meeting at {}: {}", records.size(), hosts, hosts == 1 ? "" : "s",
                     transport, store, join(parts, "; "));
}

void check_addresses(const std::vector<PeerRecord>& records, int rank) {
  const std::vector<int> host_of = hosts_of(records);
  for (size_t inner = 0; inner < records.size(); ++inner) {
    for (size_t outer = 0; outer < records.size(); ++outer) {
      const bool apart = is_loopback(records[outer]) ? host_of[inner] != host_of[outer] : inner != outer;
      if (!is_loopback(records[inner]) || !apart) continue;
      throw Error(
          fmt::format("comm rank {}", rank),
          fmt::format("rank {} is to be reached at {} ({}), which is no address for rank {} ({}). Set "
                      "MASTER_ADDR to an address that all hosts reach, or GLOO_SOCKET_IFNAME to the interface "
                      "between the hosts.",
                      inner, records[inner].address,
                      records[inner].interface.empty() ? "as its host takes MASTER_ADDR" : records[inner].interface,
                      outer, on_host(records[outer])));
    }
  }
}

std::string unreachable_memory(const std::vector<PeerRecord>& records) {
  for (size_t peer = 0; peer < records.size(); ++peer) {
    const PeerRecord& record = records[peer];
    const auto mapping = PeerMapping::open(record.pid, record.probe_fd, sizeof(record.token), false);
    if (!mapping) return fmt::format("cannot open memory of rank {} ({})", peer, std::strerror(errno));
    if (std::memcmp(mapping->data(), &record.token, sizeof(record.token)) != 0) {
      return fmt::format("process {} is not rank {} here: the two do not see the same processes", record.pid, peer);
    }
  }
  return "";
}

}  // namespace shoal
