// The command `shoal`. Reads the words, runs one verb, turns what was thrown into a message and an exit code.
#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>
#include <vector>

#include "base/text.h"
#include "cli/verbs.h"
#include "launch/restart_rule.h"
#include "train/audit.h"

namespace shoal::cli {
namespace {

constexpr int kFailed = 1;
constexpr int kWrongUsage = 2;

void add_verbs(CLI::App& app, int& exit_code) {
  add_train(app, exit_code);
  add_generate(app, exit_code);
  add_compare(app, exit_code);
  add_report(app, exit_code);
  add_launch(app, exit_code);
  add_plan(app, exit_code);
  add_checkpoint(app, exit_code);
  add_tokenize(app, exit_code);
  add_doctor(app, exit_code);
  add_completion(app, exit_code);
  add_man(app, exit_code);
}

// A flag with nothing behind it is a shell variable that was not set. The words of another program may be empty.
void refuse_empty_values(CLI::App& app) {
  for (CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; })) refuse_empty_values(*verb);
  for (CLI::Option* option : app.get_options()) {
    if (option->get_lnames().empty() || option->get_items_expected_max() == 0) continue;
    option->check([](const std::string& value) { return value.empty() ? "is empty. Give a value" : ""; });
  }
}

// What was printed may not have got through: a full disk behind `>`.
bool output_was_lost() { return std::fflush(stdout) != 0 || std::ferror(stdout) != 0; }

// The verb that was meant, or the command itself.
const CLI::App& innermost(const CLI::App& app) {
  const auto verbs = app.get_subcommands();
  return verbs.empty() ? app : innermost(*verbs.back());
}

std::vector<std::string> flags_of(const CLI::App& verb) {
  std::vector<std::string> flags;
  for (const CLI::Option* option : verb.get_options()) {
    for (const std::string& name : option->get_lnames()) flags.push_back("--" + name);
    for (const std::string& name : option->get_snames()) flags.push_back("-" + name);
  }
  return flags;
}

std::vector<std::string> verbs_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(verb->get_name());
  }
  return names;
}

// A word that nothing expects is the likely cause of any other complaint, so it is looked for first.
std::string wrong_word(const CLI::App& app) {
  const CLI::App& verb = innermost(app);
  for (const std::string& word : verb.remaining()) {
    if (word == "--") continue;
    const bool flag = word.starts_with("-");
    const std::string name = word.substr(0, word.find('='));
    const std::vector<std::string> known = flag ? flags_of(verb) : verbs_of(verb);
    if (!flag && known.empty()) return fmt::format("\"{}\" was not expected.", word);
    const std::string nearest = nearest_word(name, known);
    return fmt::format("{} is not a {} of {}.{}", name, flag ? "flag" : "verb", verb.get_name(),
                       nearest.empty() ? "" : fmt::format(" Did you mean {}?", nearest));
  }
  return "";
}

int report_wrong_usage(const CLI::App& app, const CLI::ParseError& error) {
  const std::string word = wrong_word(app);
  const CLI::App& verb = innermost(app);
  std::string path;
  for (const CLI::App* at = &verb; at != nullptr; at = at->get_parent()) {
    path = path.empty() ? at->get_name() : at->get_name() + " " + path;
  }
  fmt::print(stderr, "{}: {}\nSee {} --help.\n", path, word.empty() ? error.what() : word, path);
  return kWrongUsage;
}

bool is_wrong_usage(const Error& error) {
  return dynamic_cast<const UsageError*>(&error) != nullptr || error.place().starts_with("--") ||
         error.place().starts_with("config");
}

int run(int argc, char** argv) {
  CLI::App app("Trains models that do not fit: ZeRO over ranks, from the command line.", "shoal");
  app.set_version_flag("--version", fmt::format("shoal {} (torch {})", SHOAL_VERSION, SHOAL_TORCH_VERSION));
  app.require_subcommand(1);
  app.footer(
      "Example:\n  shoal train --model llama-tiny --data text:docs --sequence 64 --steps 200 --ranks 2 --out run");
  int exit_code = 0;
  add_verbs(app, exit_code);
  refuse_empty_values(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success))
      return app.exit(error);  // --help, --version
    return report_wrong_usage(app, error);
  } catch (const Error& error) {
    fmt::print(stderr, "shoal: {}\n", error.what());
    if (dynamic_cast<const train::AuditError*>(&error) != nullptr) return launch::kAuditExit;
    return is_wrong_usage(error) ? kWrongUsage : kFailed;
  } catch (const std::exception& error) {
    fmt::print(stderr, "shoal: {}\n", error.what());
    return kFailed;
  }
  if (exit_code == 0 && output_was_lost()) {
    fmt::print(stderr, "shoal: [standard output] could not be written: {}. What was printed is lost.\n",
               strerror(errno));
    return kFailed;
  }
  return exit_code;
}

}  // namespace
}  // namespace shoal::cli

int main(int argc, char** argv) { return shoal::cli::run(argc, argv); }
