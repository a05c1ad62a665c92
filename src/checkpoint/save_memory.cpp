// See save_memory.h.
#include "checkpoint/save_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>

#include "base/text.h"
#include "checkpoint/exchange.h"
#include "plan/memory.h"
#include "plan/save_memory.h"
#include "shoal/error.h"

namespace shoal::checkpoint {

size_t needed_memory(const PictureNeed& need, const std::function<size_t()>& most) {
  const size_t least = in_pages(static_cast<size_t>(need.least));
  if (need.held >= in_pages(static_cast<size_t>(need.state))) return need.held;
  const bool asked = need.asked > 0;
  if (!asked && need.held >= least && need.held > 0) return need.held;
  return std::max(least,
                  picture_nbytes(static_cast<size_t>(need.state), asked ? static_cast<size_t>(need.asked) : most()));
}

PictureMemory take_memory(size_t nbytes, size_t least, const std::function<std::shared_ptr<std::byte>(size_t)>& take) {
  while (true) {
    try {
      return {take(nbytes), nbytes};
    } catch (const std::exception& error) {
      if (nbytes <= least) {
        throw Error("checkpoint",
                    fmt::format("there are no {} of host memory for a save behind training ({}). Give it less "
                                "(shoal.save_memory), or let training wait for saves (shoal train --save-and-wait, "
                                "save_checkpoint).",
                                format_nbytes(nbytes), message_of(error)));
      }
    }
    nbytes = std::max(least, in_pages(nbytes / 2));
  }
}

}  // namespace shoal::checkpoint
