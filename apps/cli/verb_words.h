// The verbs and flags of the command as data, read from what `--help` prints: for completion.cpp and man.cpp. A new
// verb or flag needs nothing here.
#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

namespace shoal::cli {

struct FlagWords {
  std::vector<std::string> names;    // as they are typed: "-n", "--ranks"
  std::string options;               // what --help prints behind the names: " INT REQUIRED"
  std::string about;                 // "How many ranks to start"
  bool takes_value = false;          // else it stands alone
  bool repeats = false;              // may be given more than once
  std::vector<std::string> choices;  // the only values there are; empty: any
};

struct VerbWords {
  std::string path;  // "shoal checkpoint verify"
  std::string name;  // "verify"
  std::string about, usage, footer;
  std::vector<FlagWords> flags;        // without those that --help does not show
  std::vector<FlagWords> positionals;  // words that are no flags: files or folders
  std::vector<VerbWords> verbs;
};

// Of the command and of all verbs under it.
VerbWords words_of(const CLI::App& app);

// The verb and all under it, parents first.
std::vector<const VerbWords*> all_of(const VerbWords& verb);

// What a flag's value may be beside a file's name, where that is a list: built-in models, clusters, keys of the config.
// A key ends with "=".
std::vector<std::string> suggested_values(const FlagWords& flag);

}  // namespace shoal::cli
