// `shoal man`: the text of --help as pages for man, one a verb.
#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "base/text.h"
#include "cli/verb_words.h"
#include "cli/verbs.h"

namespace shoal::cli {

namespace {

struct ManFlags {
  std::vector<std::string> verb;
  std::string out;
};

// Text that roff takes as it is: a backslash and a hyphen have a meaning, and so has a dot or a quote that begins a
// line.
std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if ((c == '.' || c == '\'') && (out.empty() || out.back() == '\n')) out += "\\&";
    out += c == '\\' ? "\\e" : c == '-' ? "\\-" : c == '`' ? "\\(ga" : std::string(1, c);
  }
  return out;
}

// "shoal checkpoint verify" -> "shoal-checkpoint-verify".
std::string page_name(const VerbWords& verb) {
  std::string name = verb.path;
  for (char& c : name) c = c == ' ' ? '-' : c;
  return name;
}

std::string entry(const FlagWords& flag) {
  std::string names;
  for (const std::string& name : flag.names) names += (names.empty() ? "" : ", ") + ("\\fB" + escaped(name) + "\\fR");
  return fmt::format(".TP\n{}{}\n{}\n", names, escaped(flag.options), escaped(flag.about));
}

// Lines that --help sets in are commands; what follows them, if anything, is a text again.
std::string footer(const std::string& text) {
  std::string out;
  bool example = false;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const bool command = line.starts_with("  ");
    if (line == "Example:") {
      out += ".SH EXAMPLE\n";
    } else if (!line.empty()) {
      if (command != example) out += command ? ".nf\n" : ".fi\n";
      out += (command ? "" : ".PP\n") + escaped(line) + "\n";
      example = command;
    }
  }
  return out + (example ? ".fi\n" : "");
}

std::string man_page(const VerbWords& verb, const VerbWords& command) {
  std::string usage = verb.usage.substr(verb.usage.find(": ") + 1);
  std::istringstream words(usage);
  usage.clear();
  for (std::string word; words >> word;) usage += (usage.empty() ? "" : " ") + word;
  std::string text =
      fmt::format(".TH {} 1 \"\" \"shoal {}\" Shoal\n.SH NAME\n{} \\- {}\n.SH SYNOPSIS\n{}\n", escaped(page_name(verb)),
                  SHOAL_VERSION, escaped(page_name(verb)), escaped(verb.about), escaped(usage));
  if (!verb.verbs.empty()) text += ".SH VERBS\n";
  for (const VerbWords& under : verb.verbs) {
    text += fmt::format(".TP\n\\fB{}\\fR\n{}\n", escaped(under.name), escaped(under.about));
  }
  if (!verb.positionals.empty()) text += ".SH WORDS\n";
  for (const FlagWords& word : verb.positionals) text += entry(word);
  text += ".SH FLAGS\n";
  for (const FlagWords& flag : verb.flags) text += entry(flag);
  const std::string after = footer(verb.footer);
  if (!after.starts_with(".SH")) text += ".SH NOTES\n";
  text += after + ".SH SEE ALSO\n";
  std::vector<std::string> others;
  for (const VerbWords* other : all_of(command)) {
    if (other != &verb) others.push_back(fmt::format("\\fB{}\\fR(1)", escaped(page_name(*other))));
  }
  return text + join(others, ",\n") + "\n";
}

const VerbWords& find_verb(const VerbWords& command, const std::vector<std::string>& words) {
  const VerbWords* at = &command;
  for (const std::string& word : words) {
    const VerbWords* found = nullptr;
    std::vector<std::string> names;
    for (const VerbWords& under : at->verbs) {
      names.push_back(under.name);
      if (under.name == word) found = &under;
    }
    if (found == nullptr) {
      const std::string nearest = nearest_word(word, names);
      throw UsageError("man", fmt::format("{} is not a verb of {}.{}", word, at->path,
                                          nearest.empty() ? "" : fmt::format(" Did you mean {}?", nearest)));
    }
    at = found;
  }
  return *at;
}

void write_pages(const VerbWords& command, const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  for (const VerbWords* verb : all_of(command)) {
    const std::string path = fmt::format("{}/{}.1", folder, page_name(*verb));
    std::ofstream file(path, std::ios::binary);
    file << man_page(*verb, command);
    file.close();
    if (!file) throw Error("--out " + path, "cannot be written. Give a folder that can be written to, with space.");
  }
}

}  // namespace

void add_man(CLI::App& app, int& exit_code) {
  CLI::App* verb = app.add_subcommand("man", "Print the manual page of a verb");
  const auto flags = std::make_shared<ManFlags>();
  CLI::Option* words = verb->add_option("verb", flags->verb, "The verb; left out: the command");
  verb->add_option("--out", flags->out, "Write the pages of all verbs into this folder instead")->excludes(words);
  verb->footer("Example:\n  shoal man train | man -l -\n  shoal man --out ~/.local/share/man/man1");
  verb->callback([&app, flags, &exit_code] {
    const VerbWords command = words_of(app);
    if (flags->out.empty()) {
      fmt::print("{}", man_page(find_verb(command, flags->verb), command));
    } else {
      write_pages(command, flags->out);
    }
    exit_code = 0;
  });
}

}  // namespace shoal::cli
