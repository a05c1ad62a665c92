// The scripts of `shoal completion`: verbs, flags and values where they are a list, else names of files. They hold all
// words and do not call the command, which takes half a second to load torch.
#pragma once

#include <string>

#include "cli/verb_words.h"

namespace shoal::cli {

std::string bash_completion(const VerbWords& command);
std::string zsh_completion(const VerbWords& command);
std::string fish_completion(const VerbWords& command);

}  // namespace shoal::cli
