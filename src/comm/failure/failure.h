// Why a world of ranks cannot go on. The first rank that finds out writes it where its peers look, and every rank
// makes its own message of it: what it was doing itself, and who is to blame.
#pragma once

#include <string>
#include <vector>

#include "shoal/error.h"
#include "shoal/group.h"

namespace shoal {

struct Failure {
  int reporter = 0;   // the rank that found out
  std::string at;     // what the reporter was doing: "gather of block.3 (weights #42)"; empty outside a collective
  std::string cause;  // names the rank to blame: "rank 0 died (process 1234 is gone). ..."
};

// As one text for a KeyStore, and back.
std::string to_text(const Failure& failure);
Failure failure_from_text(const std::string& text);

// The error of `rank`, which was at `at`.
Error error_of(const Failure& failure, int rank, const std::string& at);

// How long a rank that has joined the world may be silent until all are connected, if the group's timeout is not
// shorter. All are there then and have nothing else to do, and nothing but silence tells of a death.
inline constexpr Timeout kMeetingTimeout = std::chrono::seconds(20);

// Causes, worded once for every transport.
std::string cause_late(const std::vector<int>& missing, Timeout timeout);
// The same where those who are late wait for others in their turn, who are `to_blame`; see blame.h.
std::string cause_late(const std::vector<int>& missing, Timeout timeout, const std::vector<int>& to_blame);
// Of ranks that joined the world nowhere that `store` knows of.
std::string cause_not_joined(const std::vector<int>& missing, Timeout timeout, const std::string& store);
std::string cause_silent(const std::vector<int>& silent, Timeout limit);
// Of the process that serves the store: "rank 0" or "the launcher".
std::string cause_store_silent(const std::string& server, Timeout limit);
// Of a collective on a GPU, where nobody knows who is missing.
std::string cause_stuck(int rank, Timeout timeout);
std::string cause_unconnected(Timeout timeout);
// `problem`: why `door` of rank `peer`, which lives on `host`, cannot be reached from `own`, an address.
std::string cause_unreachable(int peer, const std::string& host, const std::string& door, const std::string& own,
                              const std::string& problem);
std::string cause_unconnected_over(const std::string& transport, Timeout timeout);
// Of a GPU of which nothing is known any more.
std::string cause_no_answer(int rank, Timeout silence);
std::string cause_gpu_failed(int rank, const std::string& how);
std::string cause_left(int rank);
std::string cause_died(int rank, const std::string& how_known);
std::string cause_aborted(int rank, const std::string& reason);

}  // namespace shoal
