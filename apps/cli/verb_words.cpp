// See verb_words.h.
#include "cli/verb_words.h"

#include <sstream>

#include "config/table.h"
#include "forecast/cluster.h"
#include "models/open_model.h"

namespace shoal::cli {

namespace {

// CLI::IsMember writes itself into the type, as --help shows it: "TEXT:{stop,continue}".
std::vector<std::string> choices_in(const std::string& type) {
  const size_t open = type.find('{'), close = type.rfind('}');
  if (open == std::string::npos || close == std::string::npos) return {};
  std::istringstream list(type.substr(open + 1, close - open - 1));
  std::vector<std::string> choices;
  for (std::string choice; std::getline(list, choice, ',');) choices.push_back(choice);
  return choices;
}

FlagWords flag_words(const CLI::App& app, const CLI::Option& option) {
  const auto formatter = app.get_formatter();
  FlagWords flag;
  for (const std::string& name : option.get_snames()) flag.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) flag.names.push_back("--" + name);
  if (flag.names.empty()) flag.names.push_back(option.get_name());
  flag.options = dynamic_cast<const CLI::Formatter&>(*formatter).make_option_opts(&option);
  flag.about = option.get_description();
  flag.takes_value = option.get_items_expected_max() > 0;
  flag.repeats = option.get_items_expected_max() > 1;
  flag.choices = choices_in(option.get_type_name());
  return flag;
}

VerbWords words_under(const CLI::App& app, const std::string& parent) {
  VerbWords verb;
  verb.name = app.get_name();
  verb.path = parent.empty() ? verb.name : parent + " " + verb.name;
  verb.about = app.get_description();
  verb.footer = app.get_footer();
  verb.usage = dynamic_cast<const CLI::Formatter&>(*app.get_formatter()).make_usage(&app, verb.path);
  for (const CLI::Option* option : app.get_options([](const CLI::Option*) { return true; })) {
    if (option->get_group().empty()) continue;
    (option->nonpositional() ? verb.flags : verb.positionals).push_back(flag_words(app, *option));
  }
  for (const CLI::App* under : app.get_subcommands([](const CLI::App*) { return true; })) {
    verb.verbs.push_back(words_under(*under, verb.path));
  }
  return verb;
}

std::vector<std::string> config_keys() {
  std::vector<std::string> keys;
  for (const config::Section& section : config::table().sections()) {
    for (const config::Key& key : section.keys) {
      if (key.status == config::Status::carried_out) keys.push_back(key.path + "=");
    }
  }
  return keys;
}

}  // namespace

VerbWords words_of(const CLI::App& app) { return words_under(app, ""); }

std::vector<const VerbWords*> all_of(const VerbWords& verb) {
  std::vector<const VerbWords*> all = {&verb};
  for (const VerbWords& under : verb.verbs) {
    for (const VerbWords* each : all_of(under)) all.push_back(each);
  }
  return all;
}

std::vector<std::string> suggested_values(const FlagWords& flag) {
  const std::string& name = flag.names.back();
  if (name == "--model") return models::builtin_models();
  if (name == "--cluster") return forecast::cluster_names();
  if (name == "--set") return config_keys();
  return flag.choices;
}

}  // namespace shoal::cli
