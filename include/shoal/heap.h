// For programs that train on the CPU and own their process; the library never calls it by itself.
#pragma once

namespace shoal {

// Memory that is freed stays with the process, blocks of up to 32 MiB at least, instead of going back to the system:
// the activations of the next step find it, where else the system would clear every page of it again. The process keeps
// what its largest step took. `shoal train` calls it.
void keep_freed_memory();

}  // namespace shoal
