// `shoal doctor`: looks at this machine and says what would keep Shoal from running, or from running fast. With --ranks
// it measures every rank of a run to be, and says which of them stands out.
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <string>

#include "cli/device_flag.h"
#include "cli/own_ranks.h"
#include "cli/verbs.h"
#include "doctor/gpu_checks.h"
#include "doctor/host_checks.h"
#include "doctor/rank_checks.h"
#include "engine/room.h"
#include "launch/launch_ranks.h"
#include "shoal/device.h"
#include "shoal/group.h"
#include "train/prepare.h"

namespace shoal::cli {

namespace {

constexpr int kOddRank = 3;  // exit code: a rank stands out

struct DoctorFlags {
  bool as_json = false;
  int ranks = 0;
  std::string device = "auto";
  std::string disk;
};

int check_machine(const DoctorFlags& flags) {
  std::vector<doctor::Finding> findings = doctor::check_host();
  for (doctor::Finding& finding : doctor::check_gpus()) findings.push_back(std::move(finding));
  fmt::print("{}\n", flags.as_json ? doctor::to_json(findings) : doctor::to_text(findings));
  return doctor::lets_train(findings) ? 0 : 1;
}

int start_ranks(int ranks) {
  launch::LaunchOptions launching;
  launching.command = own_command();
  launching.ranks = ranks;
  launching.prefix = false;
  launching.unfinished_code = kOddRank;
  return launch::launch_ranks(launching).exit_code();
}

// On each rank, or starts them.
int check_ranks(const DoctorFlags& flags) {
  const int ranks = ranks_asked(flags.ranks);
  if (ranks < 2) throw UsageError("--ranks", "one rank has no others to be compared with. Give 2 or more.");
  const std::string named = device_named(flags.device);
  if (!under_launcher(flags.ranks)) return start_ranks(ranks);
  const at::Device device = open_device(named);
  at::set_num_threads(train::threads_for({}, local_ranks(ranks)));  // as a run has them
  const std::unique_ptr<Group> world = make_process_group();
  try {
    const doctor::CheckedRanks checked = doctor::check_ranks(*world, {.device = device, .disk = flags.disk});
    if (world->rank() == 0) {
      fmt::print("{}", flags.as_json ? doctor::to_json(checked.rates, checked.hosts) + "\n"
                                     : doctor::to_text(checked.rates, checked.hosts));
    }
    return doctor::odd_ranks(checked.rates).empty() ? 0 : kOddRank;
  } catch (const std::exception& error) {
    world->abort(error.what());
    throw;
  }
}

}  // namespace

void add_doctor(CLI::App& app, int& exit_code) {
  CLI::App* verb =
      app.add_subcommand("doctor", "Look at this machine, or measure every rank: GPUs, memory, wires, limits");
  const auto flags = std::make_shared<DoctorFlags>();  // lives as long as the callback
  verb->add_flag("--json", flags->as_json, "for programs");
  CLI::Option* ranks =
      verb->add_option("--ranks", flags->ranks,
                       "measure so many ranks, all at once: products, copies, the link to other ranks, a disk; and say "
                       "which stands out. Under torchrun, mpirun or srun each process is one")
          ->check(CLI::Range(1, launch::kMostRanks));
  verb->add_option("--device", flags->device, "of each rank: auto, cpu, cuda or cuda:<number>")
      ->needs(ranks)
      ->capture_default_str();
  verb->add_option("--disk", flags->disk, "a folder to which each rank writes 64 MiB, and reads them again")
      ->needs(ranks)
      ->check(CLI::ExistingDirectory);
  verb->footer(
      "Example:\n  shoal doctor\n  shoal doctor --ranks 4 --disk /data\n"
      "  torchrun --no-python --nnodes 2 --nproc-per-node 8 ... shoal doctor --ranks 16\n\n"
      "Ends with 0 when training can run here, on a GPU or on the CPU.\n"
      "With --ranks it ends with 3 when a rank is below 0.75 of the median of the others in anything.");
  verb->callback(
      [flags, ranks, &exit_code] { exit_code = ranks->count() > 0 ? check_ranks(*flags) : check_machine(*flags); });
}

}  // namespace shoal::cli
