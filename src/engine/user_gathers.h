// Parameters that are whole for the user: inside with_gathered(), and between begin() and finish().
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine_parts.h"
#include "engine/gathered.h"

namespace shoal {

class UserGathers {
 public:
  // The parts outlive this.
  explicit UserGathers(EngineParts& parts) : parts_(parts) {}

  void with_gathered(const std::vector<std::string>& names, Access access, const std::function<void()>& use);
  int begin(const std::vector<std::string>& names);
  void finish(int id, std::optional<int> written_by);

  bool inside() const { return inside_; }
  bool any_open() const { return !open_.empty(); }
  // Throws when some of the unit's parameters are gathered, and others not.
  void check_usable(int unit) const;
  // The engine goes.
  void clear() { open_.clear(); }

 private:
  std::vector<ParamAddress> addresses_of(const std::vector<std::string>& names) const;
  GatherParts gather_parts() const;
  void forget_errors();

  EngineParts& parts_;
  bool inside_ = false;
  std::map<int, std::unique_ptr<GatheredParams>> open_;  // begun and not finished
  int last_ = 0;
};

}  // namespace shoal
