// NCCL's functions, taken from the library that torch's wheel brings when they are first asked for: a program needs
// neither its headers to be built nor the library to start.
#pragma once

#include <array>
#include <cstddef>

namespace shoal {

// As nccl.h of 2.28 has them.
using NcclComm = void*;
struct NcclUniqueId {
  std::array<char, 128> bytes;
};
enum class NcclType : int { int8 = 0, f16 = 6, f32 = 7, bf16 = 9 };
enum class NcclOp : int { sum = 0 };

struct NcclLibrary {
  int (*get_version)(int* version);
  int (*get_unique_id)(NcclUniqueId* id);
  int (*comm_init_rank)(NcclComm* comm, int ranks, NcclUniqueId id, int rank);
  int (*comm_destroy)(NcclComm comm);
  int (*comm_abort)(NcclComm comm);
  int (*comm_get_async_error)(NcclComm comm, int* result);
  int (*all_gather)(const void* send, void* receive, size_t count, NcclType type, NcclComm comm, void* stream);
  int (*reduce_scatter)(const void* send, void* receive, size_t count, NcclType type, NcclOp op, NcclComm comm,
                        void* stream);
  int (*all_reduce)(const void* send, void* receive, size_t count, NcclType type, NcclOp op, NcclComm comm,
                    void* stream);
  int (*broadcast)(const void* send, void* receive, size_t count, NcclType type, int root, NcclComm comm, void* stream);
  int (*send)(const void* data, size_t count, NcclType type, int peer, NcclComm comm, void* stream);
  int (*receive)(void* data, size_t count, NcclType type, int peer, NcclComm comm, void* stream);
  // Sends and receives between the two are carried out together, so that none waits for another.
  int (*group_start)();
  int (*group_end)();
  const char* (*get_error_string)(int result);

  // Throws shoal::Error when it cannot be loaded.
  static const NcclLibrary& get();
  // Throws what NCCL says when `result` is no success.
  void check(int result, const char* call) const;
};

}  // namespace shoal
