// `shoal completion`: a script that teaches a shell the verbs and flags. The text is made in completion_scripts.h.
#include <fmt/format.h>

#include <memory>
#include <string>

#include "cli/completion_scripts.h"
#include "cli/verbs.h"

namespace shoal::cli {

void add_completion(CLI::App& app, int& exit_code) {
  CLI::App* verb = app.add_subcommand("completion", "Print a script that completes this command's words in a shell");
  const auto shell = std::make_shared<std::string>();
  verb->add_option("shell", *shell, "The shell")->required()->check(CLI::IsMember({"bash", "zsh", "fish"}));
  verb->footer(
      "`make install` and the wheel put the scripts where the shells look for them, beside the command.\n"
      "\nExample:\n  source <(shoal completion bash)    # in this shell; from ~/.bashrc in every one\n"
      "  source <(shoal completion zsh)     # after compinit\n"
      "  shoal completion fish >~/.config/fish/completions/shoal.fish");
  verb->callback([&app, shell, &exit_code] {
    const VerbWords command = words_of(app);
    fmt::print("{}", *shell == "bash"  ? bash_completion(command)
                     : *shell == "zsh" ? zsh_completion(command)
                                       : fish_completion(command));
    exit_code = 0;
  });
}

}  // namespace shoal::cli
