// See shoal/checkpoint.h and resolve.h: which checkpoint of a folder is taken up again.
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>

#include "checkpoint/durable_file.h"
#include "checkpoint/resolve.h"
#include "checkpoint/run_folder.h"
#include "shoal/checkpoint.h"

namespace shoal {

namespace checkpoint {

namespace fs = std::filesystem;

// What `latest` names, if that is complete; else the complete one of the highest step.
std::string find_latest(const std::string& folder, PassedOver passed_over) {
  std::error_code error;
  const auto path_of = [&](const std::string& name) { return (fs::path(folder) / name).string(); };
  const auto tell = [passed_over](const std::string& line) {
    if (passed_over == PassedOver::told) fmt::print(stderr, "[checkpoint] {}\n", line);
  };
  const auto pass_over = [&tell](const std::string& path, const std::string& why) {
    tell(fmt::format("{} is not complete and is passed over: {}", path, why));
  };
  std::string named;
  if (fs::is_regular_file(path_of("latest"), error)) {
    named = read_text(path_of("latest"));
    named.erase(named.find_last_not_of(" \r\n\t") + 1);
    if (!step_of_name(named)) {
      tell(fmt::format("{} does not name a checkpoint.", path_of("latest")));
      named.clear();
    } else if (const std::string why = incompleteness_of(path_of(named)); why.empty()) {
      return path_of(named);
    } else {
      pass_over(path_of(named), why);
    }
  }
  std::vector<std::string> names = steps_in(folder);
  for (auto name = names.rbegin(); name != names.rend(); ++name) {
    if (*name == named) continue;
    const std::string why = incompleteness_of(path_of(*name));
    if (why.empty()) return path_of(*name);
    pass_over(path_of(*name), why);
  }
  return "";
}

}  // namespace checkpoint

std::string find_latest_checkpoint(const std::string& folder) {
  return checkpoint::find_latest(folder, checkpoint::PassedOver::told);
}

}  // namespace shoal
