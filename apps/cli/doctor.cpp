// `shoal doctor`: looks at this machine and says what would keep Shoal from running, or from running fast.
#include <fmt/format.h>

#include <memory>

#include "cli/verbs.h"
#include "doctor/gpu_checks.h"
#include "doctor/host_checks.h"

namespace shoal::cli {

void add_doctor(CLI::App& app, int& exit_code) {
  CLI::App* verb = app.add_subcommand("doctor", "Look at this machine: GPUs, memory, wires, limits");
  const auto as_json = std::make_shared<bool>(false);
  verb->add_flag("--json", *as_json, "for programs");
  verb->footer("Example:\n  shoal doctor\n\nEnds with 0 when training can run here, on a GPU or on the CPU.");
  verb->callback([as_json, &exit_code] {
    std::vector<doctor::Finding> findings = doctor::check_host();
    for (doctor::Finding& finding : doctor::check_gpus()) findings.push_back(std::move(finding));
    fmt::print("{}\n", *as_json ? doctor::to_json(findings) : doctor::to_text(findings));
    exit_code = doctor::lets_train(findings) ? 0 : 1;
  });
}

}  // namespace shoal::cli
