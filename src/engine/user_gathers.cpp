// See user_gathers.h.
#include "engine/user_gathers.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "shoal/error.h"

namespace shoal {

std::vector<ParamAddress> UserGathers::addresses_of(const std::vector<std::string>& names) const {
  const auto& by_name = parts_.blueprint.by_name;
  std::vector<ParamAddress> addresses;
  for (const std::string& name : names) {
    const auto found = by_name.find(name);
    if (found == by_name.end()) {
      std::vector<std::string> known;
      for (const auto& [known_name, address] : by_name) known.push_back(known_name);
      const std::string near = nearest_word(name, known);
      throw Error("with_gathered", fmt::format("there is no parameter {}.{}", name,
                                               near.empty() ? " Use the names that the units were declared with."
                                                            : fmt::format(" Did you mean {}?", near)));
    }
    addresses.push_back(found->second);
  }
  return addresses;
}

GatherParts UserGathers::gather_parts() const {
  return {parts_.layout, parts_.weights, parts_.states, parts_.weights_channel->bytes(), *parts_.queue, parts_.ledger};
}

void UserGathers::with_gathered(const std::vector<std::string>& names, Access access,
                                const std::function<void()>& use) {
  parts_.check_sound("with_gathered");
  if (!parts_.passes.between_passes()) {
    throw Error("with_gathered", "a pass is open: its forward ran and its backward did not. Gather between passes.");
  }
  if (inside_) throw Error("with_gathered", "is called inside itself. Name all parameters in one call.");
  parts_.stepper.settle_all();
  shoal::with_gathered(gather_parts(), addresses_of(names), access, [&] {
    inside_ = true;
    try {
      use();
    } catch (...) {
      inside_ = false;
      throw;
    }
    inside_ = false;
  });
  if (access == Access::write) forget_errors();
}

// Of gradients of weights that are others now.
void UserGathers::forget_errors() {
  if (!parts_.gradients.keeps_errors()) return;
  parts_.gradients.wait();
  parts_.gradients.forget_errors();
}

int UserGathers::begin(const std::vector<std::string>& names) {
  parts_.check_sound("gather");
  parts_.stepper.settle_all();
  auto gathered = std::make_unique<GatheredParams>(gather_parts(), addresses_of(names));
  open_[++last_] = std::move(gathered);
  return last_;
}

void UserGathers::finish(int id, std::optional<int> written_by) {
  const auto found = open_.find(id);
  SHOAL_CHECK(found != open_.end(), "no gather {} is open", id);
  const std::unique_ptr<GatheredParams> gathered = std::move(found->second);
  open_.erase(found);
  parts_.stepper.settle_all();  // or the update would be of what was written
  if (!written_by) return;
  gathered->take_written(*written_by);
  forget_errors();
}

void UserGathers::check_usable(int unit) const {
  for (const auto& [id, gathered] : open_) {
    if (std::find(gathered->partly().begin(), gathered->partly().end(), unit) == gathered->partly().end()) continue;
    throw Error("unit " + parts_.layout.units[static_cast<size_t>(unit)].name,
                "is used while some of its parameters are gathered for the user. Gather all of its parameters, or "
                "none.");
  }
}

}  // namespace shoal
