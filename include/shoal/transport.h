// How ranks that are processes may talk, as a config and a program choose it.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace shoal {

enum class Transport : uint8_t {
  automatic,  // shared memory when all ranks share a host, Gloo otherwise; GPUs through NCCL where it takes them
  shared_memory,
  gloo,
  nccl  // hosts as automatic; memory of GPUs through NCCL and no other way
};
// As configs, SHOAL_TRANSPORT and messages spell them, in the order of the enum.
inline constexpr std::array<std::string_view, 4> kTransportNames = {"auto", "shm", "gloo", "nccl"};
constexpr std::string_view name_of(Transport transport) { return kTransportNames[static_cast<size_t>(transport)]; }

// Who adds gradients that NCCL carries: Shoal, in the order of ranks, or NCCL, in an order of its own.
enum class Reduce : uint8_t { exact, nccl };
inline constexpr std::array<std::string_view, 2> kReduceNames = {"exact", "nccl"};

}  // namespace shoal
