// See state_digests.h.
#include "train/state_digests.h"

#include <algorithm>
#include <array>
#include <set>

#include "base/digest.h"
#include "base/json.h"
#include "base/mix.h"
#include "base/text.h"
#include "kernels/digest.h"

namespace shoal::train {

namespace {

constexpr std::array kKinds = {StateKind::weight, StateKind::first_moment, StateKind::second_moment};
constexpr int64_t kPieceNumel = int64_t{1} << 20;

// What a rank says of one state of one parameter, and the sum of it over ranks.
struct Told {
  uint64_t digest = 0;
  uint64_t numel = 0;  // 0 on all ranks: there is no such state
};

std::vector<Told> own_digests(const Engine& engine) {
  std::vector<Told> own(engine.state().params().size() * kKinds.size());
  std::vector<float> values;
  for (const StateRun& run : engine.state().owned()) {
    Told& told = own[static_cast<size_t>(run.param) * kKinds.size() + static_cast<size_t>(run.kind)];
    for (int64_t at = 0; at < run.numel; at += kPieceNumel) {
      const int64_t begin = run.begin + at, numel = std::min(kPieceNumel, run.numel - at);
      values.resize(static_cast<size_t>(numel));
      engine.state().read({run.param, run.kind, begin, numel}, values.data());
      told.digest += kernels::digest_elements(values.data(), begin, numel);
    }
    told.numel += static_cast<uint64_t>(run.numel);
  }
  return own;
}

}  // namespace

uint64_t StateDigests::all() const {
  uint64_t sum = 0;
  for (const ParamDigests& param : params) {
    for (const auto& [kind, digest] : param.states) {
      sum += mixed(hash_text(name_of(kind), hash_text(param.name)), digest);
    }
  }
  return sum;
}

StateDigests digest_states(const Engine& engine, Group& world) {
  std::vector<Told> own = own_digests(engine);
  std::vector<Told> all(own.size() * static_cast<size_t>(world.size()));
  world.all_gather({{"share", "digests"}, own.data(), all.data(), own.size() * sizeof(Told), nullptr}).wait();
  StateDigests found;
  const std::vector<ParamInfo>& infos = engine.state().params();
  for (size_t param = 0; param < infos.size(); ++param) {
    ParamDigests digests{infos[param].name, infos[param].unit, {}};
    for (size_t kind = 0; kind < kKinds.size(); ++kind) {
      Told sum;
      for (size_t at = param * kKinds.size() + kind; at < all.size(); at += own.size()) {
        sum.digest += all[at].digest;
        sum.numel += all[at].numel;
      }
      if (sum.numel > 0) digests.states.emplace_back(kKinds[kind], sum.digest);
    }
    found.params.push_back(std::move(digests));
  }
  return found;
}

std::string to_line(int64_t step, const StateDigests& digests) {
  json::Value units = json::Object{};
  for (const ParamDigests& param : digests.params) {
    if (units.find(param.unit) == nullptr) units.set(param.unit, json::Object{});
    json::Value states = json::Object{};
    for (const auto& [kind, digest] : param.states) states.set(name_of(kind), digest_text(digest));
    units.find(param.unit)->set(param.name, std::move(states));
  }
  json::Value line = json::Object{};
  line.set("step", step);
  line.set("digest", digest_text(digests.all()));
  line.set("units", std::move(units));
  return json::write(line);
}

}  // namespace shoal::train
