// The section "aio": how states are read from disk and written to it.
#include "config/sections.h"

namespace shoal::config {

std::vector<Section> aio_sections() {
  Section aio{
      .path = "aio",
      .meaning = "Access to the disk.",
      .keys = {
          nbytes("block_size", 1048576)
              .at_least(4096)
              .at_most(1 << 30)
              .means("The size of one read or write, rounded up to pages of 4096.")
              .fills(bound_to([](auto& c) -> auto& { return c.aio.block_size; })),
          integer("queue_depth", 8)
              .at_least(1)
              .at_most(4096)
              .in("requests")
              .means("Reads and writes in flight, in each queue.")
              .fills(bound_to([](auto& c) -> auto& { return c.aio.queue_depth; })),
          integer("intra_op_parallelism", 1)
              .at_least(1)
              .at_most(64)
              .in("queues")
              .means("Queues that share the requests.")
              .fills(bound_to([](auto& c) -> auto& { return c.aio.threads; })),
          boolean("single_submit", false)
              .means("Submit requests one by one.")
              .has_no_effect("requests go to the kernel as they come"),
          boolean("overlap_events", true)
              .means("Submit while earlier requests complete.")
              .has_no_effect("requests are always submitted while others are under way"),
          boolean("use_gds", false)
              .means("Move data between disk and GPU directly.")
              .has_no_effect("data passes through host memory, with the same bits"),
          integer("thread_count", Value())
              .means("An older name of DeepSpeed's for its threads.")
              .has_no_effect("DeepSpeed's code does not know this name; intra_op_parallelism is the number of queues"),
      }};
  return {std::move(aio)};
}

}  // namespace shoal::config
