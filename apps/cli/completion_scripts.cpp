// See completion_scripts.h. All words here are our own; only texts for people need quoting.
#include "cli/completion_scripts.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"

namespace shoal::cli {

namespace {

std::string head(const std::string& shell) {
  return fmt::format("# Completion of shoal {}, made by `shoal completion {}` from the command's own flags.\n",
                     SHOAL_VERSION, shell);
}

std::vector<std::string> names_of(const std::vector<VerbWords>& verbs) {
  std::vector<std::string> names;
  for (const VerbWords& verb : verbs) names.push_back(verb.name);
  return names;
}

std::vector<std::string> names_of(const std::vector<FlagWords>& flags, bool only_with_value = false) {
  std::vector<std::string> names;
  for (const FlagWords& flag : flags) {
    if (!only_with_value || flag.takes_value) names.insert(names.end(), flag.names.begin(), flag.names.end());
  }
  return names;
}

// What may stand for a word that is no flag, where that is a list: verbs, or the choices of a positional.
std::vector<std::string> words_here(const VerbWords& verb) {
  std::vector<std::string> words = names_of(verb.verbs);
  for (const FlagWords& word : verb.positionals) words.insert(words.end(), word.choices.begin(), word.choices.end());
  return words;
}

// What fits on a line of a menu: up to the first part of the sentence.
std::string brief(const std::string& about) {
  std::string text = about.substr(0, std::min(about.find("; "), about.find(". ")));
  if (!text.empty() && text.back() == '.') text.pop_back();
  return text;
}

std::string with_backslash_before(const std::string& text, const std::string& special) {
  std::string out;
  for (const char c : text) {
    if (special.find(c) != std::string::npos) out += '\\';
    out += c;
  }
  return out;
}

// The words of the last verb that stands on the line, by its path.
std::string bash_case(const std::string& name, const VerbWords& command,
                      std::vector<std::string> (*words)(const VerbWords&)) {
  std::string text = fmt::format("\n{}() {{\n  REPLY=\n  case $1 in\n", name);
  for (const VerbWords* verb : all_of(command)) {
    const std::vector<std::string> list = words(*verb);
    if (!list.empty()) text += fmt::format("    {}) REPLY='{}' ;;\n", quote_for_shell(verb->path), join(list, " "));
  }
  return text + "  esac\n}\n";
}

constexpr const char* kBashFunction = R"(
# Bash cuts `--flag=value` and `text:path` at = and :, and hands each as a word. The walk over them keeps: the verb so far, the
# flag whose value comes next, and, behind a = inside a value, that nothing is known of what follows.
_shoal() {
  local word=${COMP_WORDS[COMP_CWORD]} verb=shoal flag= last= inside= at i REPLY
  COMPREPLY=()
  for ((i = 1; i <= COMP_CWORD; ++i)); do
    at=${COMP_WORDS[i]}
    case $at in
      : | =)
        [[ $at == = && -z $flag ]] && inside=1
        flag=$last
        ((i == COMP_CWORD)) && word=
        continue
        ;;
    esac
    ((i == COMP_CWORD)) && break
    if [[ -n $flag ]]; then
      flag=
    elif [[ $at == -- ]]; then
      compopt -o default
      return
    elif [[ $at == -* ]]; then
      inside=
      _shoal_flags_with_value "$verb"
      [[ " $REPLY " == *" $at "* ]] && flag=$at
      last=$flag
    else
      last= inside=
      _shoal_verbs "$verb"
      [[ " $REPLY " == *" $at "* ]] && verb+=" $at"
    fi
  done
  if [[ -n $flag ]]; then
    REPLY=
    [[ -z $inside ]] && _shoal_values "$verb $flag"
  elif [[ $word == -* ]]; then
    _shoal_flags "$verb"
  else
    _shoal_words "$verb"
  fi
  if [[ -z $REPLY ]]; then
    compopt -o default
    return
  fi
  COMPREPLY=($(compgen -W "$REPLY" -- "$word"))
  [[ ${COMPREPLY[0]-} == *= ]] && compopt -o nospace
  [[ -n $flag ]] && compopt -o default
}
complete -F _shoal shoal
)";

std::string zsh_function(const VerbWords& verb) {
  std::string name = "_" + verb.path;
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
}

// One flag for _arguments: '(-n --ranks)'{-n+,--ranks=}'[about]:value:...', where = and + let the value stand behind
// the flag as well as beside it.
std::string zsh_flag(const FlagWords& flag) {
  const bool several = flag.names.size() > 1;
  std::string spec = flag.repeats ? "*" : several ? fmt::format("({})", join(flag.names, " ")) : "";
  spec = spec.empty() ? "" : quote_for_shell(spec);
  std::vector<std::string> names = flag.names;
  for (std::string& name : names) name += !flag.takes_value ? "" : name.starts_with("--") ? "=" : "+";
  spec += several ? fmt::format("{{{}}}", join(names, ",")) : names[0];
  std::string rest = fmt::format("[{}]", with_backslash_before(brief(flag.about), "[]\\:"));
  if (flag.takes_value) {
    const std::vector<std::string> values = suggested_values(flag);
    rest += ":value:";
    if (values.empty()) {
      rest += "_files";
    } else if (!flag.choices.empty()) {
      rest += fmt::format("({})", join(values, " "));
    } else {
      rest += fmt::format("{{compadd{} -- {}; _files}}", values[0].back() == '=' ? " -S \"\"" : "", join(values, " "));
    }
  }
  return spec + quote_for_shell(rest);
}

std::string zsh_verb(const VerbWords& verb) {
  std::string text = fmt::format("\n{}() {{\n", zsh_function(verb));
  const bool has_verbs = !verb.verbs.empty();
  if (has_verbs) text += "  local curcontext=$curcontext state line\n  typeset -A opt_args\n";
  text += fmt::format("  _arguments -s{}", has_verbs ? " -C" : " -S");
  for (const FlagWords& flag : verb.flags) text += " \\\n    " + zsh_flag(flag);
  if (has_verbs) {
    text += " \\\n    ':verb:->verb' '*::word:->words'\n  case $state in\n    verb)\n      local -a verbs=(\n";
    for (const VerbWords& under : verb.verbs) {
      text += fmt::format("        {}\n", quote_for_shell(under.name + ":" + brief(under.about)));
    }
    text += "      )\n      _describe verb verbs\n      ;;\n    words)\n      case $line[1] in\n";
    for (const VerbWords& under : verb.verbs)
      text += fmt::format("        {}) {} ;;\n", under.name, zsh_function(under));
    return text + "      esac\n      ;;\n  esac\n}\n";
  }
  const std::vector<std::string> words = words_here(verb);
  if (!words.empty()) {
    text += fmt::format(" \\\n    ':word:({})'", join(words, " "));
  } else if (!verb.positionals.empty()) {
    text += " \\\n    '*:file:_files'";
  }
  return text + "\n}\n";
}

std::string fish_text(const std::string& text) { return "'" + with_backslash_before(text, "'\\") + "'"; }

// When the verb and its parents stand on the line, and none of its own verbs.
std::string fish_condition(const VerbWords& verb) {
  std::string text;
  for (size_t at = verb.path.find(' '); at != std::string::npos;) {
    const size_t end = verb.path.find(' ', at + 1);
    text += fmt::format("{}__fish_seen_subcommand_from {}", text.empty() ? "" : "; and ",
                        verb.path.substr(at + 1, end == std::string::npos ? end : end - at - 1));
    at = end;
  }
  if (text.empty()) return "__fish_use_subcommand";
  if (!verb.verbs.empty()) text += "; and not __fish_seen_subcommand_from " + join(names_of(verb.verbs), " ");
  return text;
}

std::string fish_flag(const FlagWords& flag) {
  std::string text;
  for (const std::string& name : flag.names) {
    text += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
  }
  if (flag.takes_value) {
    const std::vector<std::string> values = suggested_values(flag);
    text += flag.choices.empty() ? " -r -F" : " -x";
    if (!values.empty()) text += fmt::format(" -a '{}'", join(values, " "));
  }
  return text + " -d " + fish_text(brief(flag.about));
}

}  // namespace

std::string bash_completion(const VerbWords& command) {
  std::string text = head("bash");
  text += bash_case("_shoal_verbs", command, [](const VerbWords& verb) { return names_of(verb.verbs); });
  text += bash_case("_shoal_words", command, words_here);
  text += bash_case("_shoal_flags", command, [](const VerbWords& verb) { return names_of(verb.flags); });
  text +=
      bash_case("_shoal_flags_with_value", command, [](const VerbWords& verb) { return names_of(verb.flags, true); });
  text += "\n_shoal_values() {\n  REPLY=\n  case $1 in\n";
  for (const VerbWords* verb : all_of(command)) {
    for (const FlagWords& flag : verb->flags) {
      const std::vector<std::string> values = suggested_values(flag);
      if (values.empty()) continue;
      std::vector<std::string> paths;
      for (const std::string& name : flag.names) paths.push_back(quote_for_shell(verb->path + " " + name));
      text += fmt::format("    {}) REPLY='{}' ;;\n", join(paths, " | "), join(values, " "));
    }
  }
  return text + "  esac\n}\n" + kBashFunction;
}

std::string zsh_completion(const VerbWords& command) {
  std::string text = "#compdef shoal\n" + head("zsh");
  for (const VerbWords* verb : all_of(command)) text += zsh_verb(*verb);
  // Sourced, or found by its name in a folder of $fpath.
  return text + "\nif [[ ${funcstack[1]-} == _shoal ]]; then\n  _shoal \"$@\"\nelse\n  compdef _shoal shoal\nfi\n";
}

std::string fish_completion(const VerbWords& command) {
  std::string text = head("fish") + "complete -c shoal -f\n";
  for (const VerbWords* verb : all_of(command)) {
    const std::string begin = fmt::format("complete -c shoal -n '{}'", fish_condition(*verb));
    for (const VerbWords& under : verb->verbs) {
      text += fmt::format("{} -a {} -d {}\n", begin, under.name, fish_text(brief(under.about)));
    }
    for (const FlagWords& flag : verb->flags) text += begin + fish_flag(flag) + "\n";
    if (verb->positionals.empty()) continue;
    const std::vector<std::string> words = words_here(*verb);
    text += begin + (words.empty() ? " -F\n" : fmt::format(" -a '{}'\n", join(words, " ")));
  }
  return text;
}

}  // namespace shoal::cli
