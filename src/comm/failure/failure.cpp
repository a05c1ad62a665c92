// See failure.h.
#include "comm/failure/failure.h"

#include <fmt/format.h>

#include "base/check.h"
#include "base/text.h"

namespace shoal {

Error error_of(const Failure& failure, int rank, const std::string& at) {
  const std::string place = fmt::format("comm rank {}", rank);
  const std::string own = at.empty() ? "" : at + ": ";
  if (failure.at.empty() || failure.at == at) return Error(place, own + failure.cause);
  return Error(place, fmt::format("{}rank {} stopped at {}: {}", own, failure.reporter, failure.at, failure.cause));
}

// Text := reporter "\n" at "\n" cause.
std::string to_text(const Failure& failure) {
  return fmt::format("{}\n{}\n{}", failure.reporter, failure.at, failure.cause);
}

Failure failure_from_text(const std::string& text) {
  const size_t first = text.find('\n');
  const size_t second = first == std::string::npos ? first : text.find('\n', first + 1);
  SHOAL_CHECK(second != std::string::npos, "not a failure: {}", text);
  return {std::stoi(text.substr(0, first)), text.substr(first + 1, second - first - 1), text.substr(second + 1)};
}

namespace {

// "rank 1", "ranks 1, 3".
std::string listed(const std::vector<int>& missing) {
  std::vector<std::string> ranks;
  for (const int rank : missing) ranks.push_back(std::to_string(rank));
  return (missing.size() == 1 ? "rank " : "ranks ") + join(ranks, ", ");
}

double seconds_of(Timeout timeout) { return std::chrono::duration<double>(timeout).count(); }

}  // namespace

std::string cause_late(const std::vector<int>& missing, Timeout timeout) {
  return fmt::format("{} did not arrive within {} s. Look at what {} does there, or raise shoal.timeout_seconds.",
                     listed(missing), seconds_of(timeout), missing.size() == 1 ? "it" : "they");
}

std::string cause_late(const std::vector<int>& missing, Timeout timeout, const std::vector<int>& to_blame) {
  if (to_blame == missing) return cause_late(missing, timeout);
  return fmt::format(
      "{} did not arrive within {} s, held up by {}. Look at what {} does, or raise shoal.timeout_seconds.",
      listed(missing), seconds_of(timeout), listed(to_blame), listed(to_blame));
}

std::string cause_not_joined(const std::vector<int>& missing, Timeout timeout, const std::string& store) {
  return fmt::format(
      "{} did not arrive within {} s at {}, where ranks meet. Look at what {} there: MASTER_ADDR, MASTER_PORT and "
      "WORLD_SIZE must be the same, and no firewall between; or raise shoal.timeout_seconds.",
      listed(missing), seconds_of(timeout), store, missing.size() == 1 ? "it says" : "they say");
}

std::string cause_silent(const std::vector<int>& silent, Timeout limit) {
  return fmt::format("{} died or hangs: {} joined the world and {} not heard of for {} s. Look at {} own output.",
                     listed(silent), silent.size() == 1 ? "it" : "they", silent.size() == 1 ? "was" : "were",
                     seconds_of(limit), silent.size() == 1 ? "its" : "their");
}

std::string cause_store_silent(const std::string& server, Timeout limit) {
  return fmt::format(
      "{} hangs, or the network to it is cut: the rendezvous store that it serves did not answer within {} s. Look at "
      "what it does there, or raise shoal.timeout_seconds.",
      server, seconds_of(limit));
}

std::string cause_stuck(int rank, Timeout timeout) {
  return fmt::format(
      "it began on the GPU of rank {} and was not over within {} s: a rank has not come to it, or a GPU or the way "
      "between them hangs. Look at the output of the other ranks, or raise shoal.timeout_seconds.",
      rank, seconds_of(timeout));
}

std::string cause_unconnected(Timeout timeout) {
  return fmt::format(
      "the GPUs of all ranks were not connected within {} s. Look at the output of the other ranks; NCCL_DEBUG=INFO in "
      "the environment says how far they came.",
      seconds_of(timeout));
}

std::string cause_unreachable(int peer, const std::string& host, const std::string& door, const std::string& own,
                              const std::string& problem) {
  return fmt::format(
      "rank {} cannot be reached at {} ({}) from {}: {}. Ranks connect at ports that their systems choose: let all "
      "through between the hosts of a run; where a host has several networks, set GLOO_SOCKET_IFNAME to the one "
      "between "
      "them.",
      peer, door, host, own, problem);
}

std::string cause_unconnected_over(const std::string& transport, Timeout timeout) {
  return fmt::format(
      "the connections over {} did not stand within {} s, though every rank answers. Look at the output of the other "
      "ranks, or raise shoal.timeout_seconds.",
      transport, seconds_of(timeout));
}

std::string cause_no_answer(int rank, Timeout silence) {
  return fmt::format(
      "the CUDA runtime of rank {} did not answer for {} s: one of its threads waits there, behind this collective or "
      "a kernel that hangs. Look at the output of the other ranks, or raise shoal.timeout_seconds.",
      rank, seconds_of(silence));
}

std::string cause_gpu_failed(int rank, const std::string& how) {
  return fmt::format("the GPU of rank {} failed: {}", rank, how);
}

std::string cause_left(int rank) {
  return fmt::format(
      "rank {} left: it destroyed its group and will not come. "
      "Make every rank run the same number of steps.",
      rank);
}

std::string cause_died(int rank, const std::string& how_known) {
  return fmt::format("rank {} died ({}). Look at its own output for the reason; the others cannot go on without it.",
                     rank, how_known);
}

std::string cause_aborted(int rank, const std::string& reason) {
  return fmt::format("rank {} gave up: {}", rank, reason);
}

}  // namespace shoal
