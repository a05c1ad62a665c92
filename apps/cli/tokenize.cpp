// `shoal tokenize`: text and conversations to a token file, by tools/make_tokens.py in a Python that has the package
// tokenizers.
#include <fmt/format.h>
#include <string.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "cli/tokenizer_program.h"
#include "cli/verbs.h"

namespace shoal::cli {

namespace {

struct TokenizeOptions {
  std::string tokenizer, output, eos, field = "text", layout = "auto", chat_template;
  bool no_template = false, skip_malformed = false;
  int processes = 0;
  std::vector<std::string> text;
};

// What the user names, what the build used, what the system has.
std::string find_python() {
  const char* named = std::getenv("SHOAL_PYTHON");
  if (named != nullptr && *named != '\0') return named;
  if (access(SHOAL_BUILD_PYTHON, X_OK) == 0) return SHOAL_BUILD_PYTHON;
  return "python3";
}

// Beside an installed command, or in the sources of one that was only built.
std::string find_script() {
  namespace fs = std::filesystem;
  const fs::path installed =
      fs::read_symlink("/proc/self/exe").parent_path().parent_path() / "share/shoal/make_tokens.py";
  return fs::exists(installed) ? installed.string() : SHOAL_SOURCE_DIR "/tools/make_tokens.py";
}

// This process becomes the Python program: signals and the exit code need no passing on.
[[noreturn]] void become_tokenizer(const TokenizeOptions& options) {
  std::vector<std::string> words = tokenizer_program();
  if (access(words[1].c_str(), R_OK) != 0) {
    throw Error("tokenize", fmt::format("{} is not there. It belongs to Shoal's sources; put them back.", words[1]));
  }
  words.insert(words.end(), {"--tokenizer", options.tokenizer, "-o", options.output});
  if (!options.eos.empty()) words.push_back("--eos=" + options.eos);
  words.push_back("--field=" + options.field);
  words.push_back("--layout=" + options.layout);
  if (!options.chat_template.empty()) words.push_back("--chat-template=" + options.chat_template);
  if (options.no_template) words.emplace_back("--no-template");
  if (options.skip_malformed) words.emplace_back("--skip-malformed");
  if (options.processes > 0) words.push_back(fmt::format("--processes={}", options.processes));
  words.push_back("--");
  words.insert(words.end(), options.text.begin(), options.text.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  execvp(argv[0], argv.data());
  throw Error("tokenize", fmt::format("{} cannot be started: {}. Run make setup, or set SHOAL_PYTHON to a Python with "
                                      "the package tokenizers.",
                                      words[0], strerror(errno)));
}

}  // namespace

std::vector<std::string> tokenizer_program() { return {find_python(), find_script()}; }

void add_tokenize(CLI::App& app, int&) {
  CLI::App* verb =
      app.add_subcommand("tokenize", "Turn text or conversations into a token file, with a model's own tokenizer");
  const auto options = std::make_shared<TokenizeOptions>();  // lives as long as the callback
  verb->add_option("--tokenizer", options->tokenizer, "The model's tokenizer.json, or the folder that holds it")
      ->required();
  verb->add_option("-o,--output", options->output, "The token file to write")->required();
  verb->add_option("--eos", options->eos, "A token to put behind each document, such as \"<|endoftext|>\"");
  verb->add_option("--field", options->field, "The field of each row that holds its text, in .jsonl and .parquet")
      ->capture_default_str();
  verb->add_option(
          "text", options->text,
          "Files, or folders of them: UTF-8 text, a document each; .jsonl (or .jsonl.gz) and .parquet, one a row")
      ->required();
  verb->add_option("--layout", options->layout,
                   "What rows hold: text, messages, sharegpt, prompt (and completion), instruction (and output); chat: "
                   "messages or sharegpt; prompts: prompt or instruction; auto: by the fields of the first row")
      ->check(CLI::IsMember({"auto", "text", "chat", "prompts", "messages", "sharegpt", "prompt", "instruction"}))
      ->capture_default_str();
  CLI::Option* chat_template = verb->add_option("--chat-template", options->chat_template,
                                                "A file with a chat template, in place of the tokenizer's own");
  verb->add_flag("--no-template", options->no_template,
                 "Of rows of prompt and completion: the one behind the other as they are, then --eos")
      ->excludes(chat_template);
  verb->add_flag("--skip-malformed", options->skip_malformed, "Leave malformed conversations out, and count them");
  verb->add_option("--processes", options->processes, "That make tokens of conversations; left out: one a core")
      ->check(CLI::Range(1, 1 << 10));
  verb->footer(
      "SHOAL_PYTHON names a Python with the package tokenizers, if the one of the build is not to be used.\n"
      "\nExample:\n  shoal tokenize --tokenizer gpt2/tokenizer.json books/ -o books.bin --eos \"<|endoftext|>\"\n"
      "  shoal tokenize --tokenizer gpt2/tokenizer.json web.jsonl --field content -o web.bin --eos \"<|endoftext|>\"\n"
      "  shoal tokenize --tokenizer qwen chat.jsonl -o chat.bin\n"
      "  shoal train --model gpt2 --data tokens:books.bin --steps 100");
  verb->callback([options] { become_tokenizer(*options); });
}

}  // namespace shoal::cli
