// The section "aio": how states are read from disk and written to it.
#include "config/sections.h"

namespace shoal::config {

std::vector<Section> aio_sections() {
  const std::string idle = "nothing is offloaded to disk";
  Section aio{
      .path = "aio",
      .meaning = "Access to the disk.",
      .keys = {
          integer("block_size", 1048576)
              .at_least(1)
              .in("bytes")
              .means("The size of one read or write.")
              .has_no_effect(idle),
          integer("queue_depth", 8).at_least(1).in("requests").means("Reads and writes in flight.").has_no_effect(idle),
          integer("intra_op_parallelism", 1)
              .at_least(1)
              .in("threads")
              .means("Threads that share one request.")
              .has_no_effect(idle),
          boolean("single_submit", false).means("Submit requests one by one.").has_no_effect(idle),
          boolean("overlap_events", true).means("Submit while earlier requests complete.").has_no_effect(idle),
          boolean("use_gds", false).means("Move data between disk and GPU directly.").is_refused(),
          integer("thread_count", Value())
              .means("Not a key of DeepSpeed, though its documentation has it.")
              .is_refused(
                  "is set by a name that DeepSpeed's code does not know. Write \"intra_op_parallelism\" instead."),
      }};
  return {std::move(aio)};
}

}  // namespace shoal::config
