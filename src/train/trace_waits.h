// The waits of a trace as events of its file: a process of their own named "waits", with a lane for each thing that was
// waited for.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "base/wait_log.h"

namespace shoal::train {

// Events of Chrome's trace format, with commas between them. Their times count from `base_ns`. The waits are in the
// order of their begins; those for one thing that overlap, of several threads, get further lanes of its name.
std::string events_of_waits(const std::vector<Wait>& waits, int64_t base_ns);

// Copies a trace as torch's profiler writes it, with the waits as its first events. Reads no more than its head as
// text, whatever its length.
void copy_with_waits(std::istream& trace, const std::vector<Wait>& waits, std::ostream& out);

}  // namespace shoal::train
