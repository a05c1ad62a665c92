// See settings.h.
#include "plan/settings.h"

#include <fmt/format.h>

#include <sstream>
#include <utility>

#include "base/text.h"
#include "config/overrides.h"
#include "config/problems.h"
#include "config/table.h"

namespace shoal {

namespace {

std::string path_of(const std::string& override) { return override.substr(0, override.find('=')); }

// "<folder>" stays bare, so that no shell takes it for a path.
std::string quoted(const std::string& word) {
  constexpr const char* kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=.,:/@%<>";
  return word.find_first_not_of(kPlain) == std::string::npos ? word : quote_for_shell(word);
}

void add_override(std::vector<std::string>& overrides, const std::string& override) {
  std::erase_if(overrides, [&](const std::string& other) { return path_of(other) == path_of(override); });
  overrides.push_back(override);
}

// A flag and its value, in place of the same flag.
void add_flag(std::vector<std::string>& flags, const std::string& name, const std::string& value) {
  for (size_t i = 0; i + 1 < flags.size(); i += 2) {
    if (flags[i] == name) {
      flags[i + 1] = value;
      return;
    }
  }
  flags.insert(flags.end(), {name, value});
}

}  // namespace

PlanSettings settings_with(json::Value written, const std::vector<std::string>& given, const std::string& words) {
  PlanSettings settings;
  for (const std::string& override : given) add_override(settings.overrides, override);
  std::istringstream list(words);
  for (std::string name, value; list >> name >> value;) {
    if (name == "--set") {
      add_override(settings.overrides, value);
    } else {
      add_flag(settings.flags, name, value);
    }
  }
  config::Problems problems(settings.overrides);
  config::apply_overrides(config::table(), settings.overrides, written, problems);
  problems.throw_if_any("settings");
  settings.config = std::move(written);
  return settings;
}

std::string command_words(const PlanSettings& settings) {
  std::string text;
  for (const std::string& override : settings.overrides) {
    text += fmt::format("{}--set {}", text.empty() ? "" : " ", quoted(override));
  }
  for (const std::string& flag : settings.flags) text += (text.empty() ? "" : " ") + quoted(flag);
  return text;
}

}  // namespace shoal
