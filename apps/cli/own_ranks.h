// Who starts the ranks of a verb that runs on several: this command, once more for each, or a launcher that did
// already.
#pragma once

#include <string>
#include <vector>

namespace shoal::cli {

// Under torchrun, mpirun or srun each process is a rank. An sbatch script has SLURM's variables too, for the one task
// that it is: asked for more ranks there, we start them.
bool under_launcher(int ranks);

// How many ranks there will be, started by a launcher or by us: 0 asks for one, or what the launcher says. Throws
// UsageError where it says something else.
int ranks_asked(int ranks);

// This command again, word for word.
std::vector<std::string> own_command();

}  // namespace shoal::cli
