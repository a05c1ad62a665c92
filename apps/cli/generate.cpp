// `shoal generate`: text from a model over bytes. The work is in train/generate.h.
#include "train/generate.h"

#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "cli/verbs.h"

namespace shoal::cli {

void add_generate(CLI::App& app, int& exit_code) {
  CLI::App* verb = app.add_subcommand("generate", "Go on with a text, with a model over bytes");
  const auto options = std::make_shared<train::GenerateOptions>();
  verb->add_option("--checkpoint", options->checkpoint, "A checkpoint, a folder of them, or a run's folder");
  verb->add_option("--model", options->model, "A model with its own weights, or the shape of the checkpoint's");
  verb->add_option("--prompt", options->prompt, "The text to go on from")->required();
  verb->add_option("--tokens", options->tokens, "How many bytes to add")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 24))
      ->capture_default_str();
  verb->add_option("--temperature", options->temperature, "0: always the likeliest; larger: more daring")
      ->check(CLI::Range(0.0, 100.0))
      ->capture_default_str();
  verb->add_option("--seed", options->seed, "Of the draws")
      ->check(CLI::Range(int64_t{0}, INT64_MAX))
      ->capture_default_str();
  verb->footer("Example:\n  shoal generate --checkpoint run --prompt \"The rank\" --tokens 200");
  verb->callback([options, &exit_code] {
    const auto emit = [](std::string_view text) {
      std::fwrite(text.data(), 1, text.size(), stdout);
      std::fflush(stdout);
    };
    options->note = [](const std::string& text) { fmt::print(stderr, "shoal: {}\n", text); };
    train::generate(*options, emit);
    emit("\n");
    exit_code = 0;
  });
}

}  // namespace shoal::cli
