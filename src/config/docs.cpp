// See docs.h.
#include "config/docs.h"

#include <fmt/format.h>

#include "base/text.h"
#include "config/value_check.h"

namespace shoal::config {
namespace {

constexpr const char* kIntroduction = R"(# The config

<!-- Written by tools/config_docs from the table in src/config/. Change the table, then write its output here. -->

Shoal reads DeepSpeed's JSON (defaults as of its version 0.19). Comments (`//`, `#`, `/* */`), trailing commas and keys
without quotes are accepted, and so is Hjson, by which DeepSpeed reads its files: no outer braces, a new line in place of a
comma, texts without quotes up to the end of their line. A key given twice is an error. All mistakes of a file are reported
together, each with its line, under the name that stands in the file. Every key is one of:

- **carried out**: it does what the table says.
- **no effect**: accepted at any valid value, and a notice gives the reason when the key is in the file.
- **refused**: not supported. Only the default, which leaves it off, is accepted; the message says what to do instead.

`"auto"` is understood where the table says what it becomes, and is an error elsewhere. A number such as `5e8` is an
integer, 0 and 1 are booleans where one is asked for, and bytes may be a text with a unit: `"24GiB"`, `"24G"` (the same),
`"24GB"` (powers of 1000). `Config::from_text` and `from_file` also take settings such as `zero_optimization.stage=3` that are laid over
the file. SHOAL_REPRODUCIBLE=1 in the environment switches `shoal.reproducible` on.
)";

// A bar would end the cell.
std::string cell(const std::string& text) {
  std::string out;
  for (const char c : text) out += c == '|' ? std::string("\\|") : std::string(1, c);
  return out;
}

std::string show_default(const Key& key) {
  if (key.required) return "none: required";
  if (key.fallback_by_type.empty()) return fmt::format("`{}`", json::write(key.fallback));
  // Types with the same default share an entry.
  std::vector<std::pair<Value, std::vector<std::string>>> groups;
  for (const auto& [type, value] : key.fallback_by_type) {
    if (groups.empty() || !(groups.back().first == value)) groups.push_back({value, {}});
    groups.back().second.push_back(type);
  }
  std::vector<std::string> parts;
  for (const auto& [value, types] : groups) parts.push_back(fmt::format("`{}`", json::write(value)));
  if (groups.size() == 1) return parts[0];
  for (size_t i = 0; i < groups.size(); ++i) parts[i] += " (" + join(groups[i].second, ", ") + ")";
  return join(parts, ", ");
}

std::string show_status(const Key& key) {
  switch (key.status) {
    case Status::carried_out: return "carried out";
    case Status::no_effect: return "no effect: " + key.reason;
    case Status::refused: return key.reason.empty() ? "refused" : "refused: the value " + key.reason;
  }
  return "";
}

std::string show_meaning(const Key& key) {
  std::string text = key.meaning;
  if (!key.aliases.empty()) text += fmt::format(" Also spelled `{}`.", join(key.aliases, "`, `"));
  std::vector<std::string> types;
  for (const auto& [type, value] : key.fallback_by_type) types.push_back(type);
  if (!types.empty()) text += fmt::format(" Taken by {}.", join(types, ", "));
  if (key.accepts_auto()) text += fmt::format(" `\"auto\"`: {}.", key.auto_meaning);
  if (!key.refused_choices.empty()) text += fmt::format(" Not supported yet: {}.", join(key.refused_choices, ", "));
  return text;
}

std::string write_section(const Section& section) {
  std::string out =
      fmt::format("\n## {}\n\n{}", section.path.empty() ? "Top level" : "`" + section.path + "`", section.meaning);
  if (!section.aliases.empty()) out += fmt::format(" Also spelled `{}`.", join(section.aliases, "`, `"));
  out += "\n";
  if (section.keys.empty()) return out;
  out += "\n| key | takes | default | unit | status | meaning |\n|---|---|---|---|---|---|\n";
  for (const Key& key : section.keys) {
    out += fmt::format("| `{}` | {} | {} | {} | {} | {} |\n", key.name, cell(describe_domain(key)),
                       cell(show_default(key)), key.unit, cell(show_status(key)), cell(show_meaning(key)));
  }
  return out;
}

std::string write_foreign(const Section& section) {
  std::vector<std::string> names;
  for (const Key& key : section.keys) names.push_back("`" + key.name + "`");
  if (section.is_open) names.push_back(names.empty() ? "any" : "others");
  const std::string off = section.off_switch.empty()
                              ? std::string("it is empty, or no `enabled` in it is true")
                              : fmt::format("`{}` is `{}`", section.off_switch, json::write(section.off_value));
  const std::string on = section.harmless.empty() ? "refused. " + section.instead : "no effect: " + section.harmless;
  return fmt::format("| `{}` | {} | {} | {} | {} |\n", section.path, section.meaning, off, on, join(names, ", "));
}

}  // namespace

std::string write_docs(const Table& table) {
  std::string out = kIntroduction;
  std::string foreign;
  for (const Section& section : table.sections()) {
    (section.is_foreign ? foreign : out) += section.is_foreign ? write_foreign(section) : write_section(section);
  }
  out += "\n## Sections that Shoal does not have\n\n";
  out +=
      "Each is accepted with a notice while it is off. While it is on, one that changes no result is accepted with a ";
  out += "notice too; the others are refused by name, with what there is instead.\n\n";
  out += "| section | what it is for | off when | while it is on | keys |\n|---|---|---|---|---|\n";
  return out + foreign;
}

}  // namespace shoal::config
