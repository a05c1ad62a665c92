// `shoal launch`: ranks of any program on this host. The work is in launch/launch_ranks.h.
#include "launch/launch_ranks.h"

#include <memory>

#include "cli/verbs.h"

namespace shoal::cli {

void add_launch(CLI::App& app, int& exit_code) {
  CLI::App* verb = app.add_subcommand("launch", "Start ranks of a program on this host");
  const auto options = std::make_shared<launch::LaunchOptions>();  // lives as long as the callback
  verb->add_option("-n,--ranks", options->ranks, "How many ranks to start")
      ->required()
      ->check(CLI::Range(1, launch::kMostRanks));
  verb->add_option("--threads", options->threads,
                   "Threads of each rank (OMP_NUM_THREADS); by default the environment's, or cores / ranks")
      ->check(CLI::Range(1, 4096));
  verb->add_flag("--share-gpu", options->share_gpu,
                 "All ranks on the first visible GPU, and NCCL between them (NCCL_HOSTID and its like are set)");
  verb->add_flag("!--no-prefix", options->prefix, "Print lines without \"[rank 1] \" before them");
  verb->add_option("program", options->command, "The program and its words, after \"--\"")->required();
  verb->footer(
      "Each rank gets RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT, as from torchrun.\n"
      "The exit code is that of the rank that failed first, 128 + signal if a signal ended it, else 0.\n"
      "\nExample:\n  shoal launch -n 2 -- ./my_program --its-flag 1\n"
      "  shoal launch -n 4 --share-gpu -- python3 train.py    # four ranks on one GPU, over NCCL");
  verb->callback([options, &exit_code] { exit_code = launch::launch_ranks(*options).exit_code(); });
}

}  // namespace shoal::cli
