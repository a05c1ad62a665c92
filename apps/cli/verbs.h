// The verbs of the command `shoal`, one file each: apps/cli/<verb>.cpp. To add a verb: its function here, one line in
// main.cpp.
//
// A verb adds a subcommand whose callback runs it and sets exit_code (0 done, 1 failed or runs that differ, 2 wrong
// usage or config, 3 a plan that does not fit, or a rank that stands out), or throws: an Error ends with code 1, an
// Error in usage with 2, an audit's with 4. Its footer is an example.
#pragma once

#include <CLI/CLI.hpp>

#include "shoal/error.h"

namespace shoal::cli {

void add_train(CLI::App& app, int& exit_code);
void add_generate(CLI::App& app, int& exit_code);
void add_compare(CLI::App& app, int& exit_code);
void add_report(CLI::App& app, int& exit_code);
void add_launch(CLI::App& app, int& exit_code);
void add_plan(CLI::App& app, int& exit_code);
void add_checkpoint(CLI::App& app, int& exit_code);
void add_tokenize(CLI::App& app, int& exit_code);
void add_doctor(CLI::App& app, int& exit_code);
// Of the other verbs that `app` has by the time they run.
void add_completion(CLI::App& app, int& exit_code);
void add_man(CLI::App& app, int& exit_code);

// What the caller of the command gave is wrong: ends with code 2. An Error whose place is a flag ("--ranks") or begins
// with "config" counts as one too.
class UsageError : public Error {
 public:
  using Error::Error;
  explicit UsageError(const Error& error) : Error(error) {}
};

// Runs `read`, which looks at flags, configs and the like; what it throws is wrong usage.
template <typename Read>
auto as_usage(const Read& read) {
  try {
    return read();
  } catch (const Error& error) {
    throw UsageError(error);
  }
}

}  // namespace shoal::cli
