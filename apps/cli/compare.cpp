// `shoal compare`: where two runs part. The work is in train/compare_runs.h.
#include "train/compare_runs.h"

#include <fmt/format.h>

#include <memory>
#include <string>

#include "cli/verbs.h"

namespace shoal::cli {

namespace {

struct CompareFlags {
  std::string first, second;
  bool json = false;
};

}  // namespace

void add_compare(CLI::App& app, int& exit_code) {
  CLI::App* verb = app.add_subcommand("compare", "Say where two runs part, to the bit");
  const auto flags = std::make_shared<CompareFlags>();
  verb->add_option("first", flags->first, "A run's folder (--out of shoal train), or its metrics.jsonl")->required();
  verb->add_option("second", flags->second, "Another one")->required();
  verb->add_flag("--json", flags->json, "One JSON object in place of text");
  verb->footer(
      "Compares metrics.jsonl, eval.jsonl and digests.jsonl (--digest-every) step by step, times and bytes apart.\n"
      "Exit code: 0 equal in all steps that both have, 1 different, 2 not to be compared.\n"
      "\nExample:\n  shoal compare run-1-rank run-4-ranks");
  verb->callback([flags, &exit_code] {
    const train::Comparison found =
        as_usage([&] { return train::compare_runs(train::read_run(flags->first), train::read_run(flags->second)); });
    fmt::print("{}", flags->json ? to_json(found) + "\n" : to_text(found));
    exit_code = found.equal() ? 0 : 1;
  });
}

}  // namespace shoal::cli
