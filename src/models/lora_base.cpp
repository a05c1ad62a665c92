// See lora_base.h.
#include "models/lora_base.h"

#include <fmt/format.h>

#include <charconv>
#include <filesystem>

#include "base/json.h"
#include "models/base_digest.h"
#include "models/open_model.h"
#include "shoal/error.h"

namespace shoal::models {

namespace {

constexpr const char* kLoraText = "lora";
constexpr const char* kLoraBaseText = "lora_base";

std::string text_member(const json::Value& of, const char* key, const std::string& place) {
  const json::Value* value = of.is_object() ? of.find(key) : nullptr;
  if (value == nullptr || !value->is_text()) {
    throw Error(place, fmt::format("says of its base no \"{}\". It is damaged, or another program wrote it.", key));
  }
  return value->as_text();
}

}  // namespace

void put_lora(const LoraBase& base, Extra& extra) {
  json::Value about = json::Object{};
  about.set("model", base.model);
  about.set("seed", std::to_string(base.seed));
  about.set("digest", base.digest);
  extra[kLoraText] = to_text(base.spec);
  extra[kLoraBaseText] = json::write(about);
}

std::optional<LoraBase> find_lora(const Extra& extra, const std::string& place) {
  const auto spec = extra.find(kLoraText), about = extra.find(kLoraBaseText);
  if (spec == extra.end() || about == extra.end()) return std::nullopt;
  const json::Value base = json::parse(about->second, place);
  LoraBase found;
  found.spec = parse_lora(spec->second);
  found.model = text_member(base, "model", place);
  const std::string seed = text_member(base, "seed", place);
  const auto [end, mistake] = std::from_chars(seed.data(), seed.data() + seed.size(), found.seed);
  if (seed.empty() || mistake != std::errc() || end != seed.data() + seed.size()) {
    throw Error(place, fmt::format("says of its base: \"{}\" is no seed. It is damaged.", seed));
  }
  found.digest = text_member(base, "digest", place);
  return found;
}

std::string lasting_name(const std::string& name_or_path) {
  const std::string folder = model_folder(name_or_path);
  if (!folder.empty()) return std::filesystem::absolute(folder).lexically_normal().string();
  return name_or_path.starts_with(kBuiltinPrefix) ? name_or_path : std::string(kBuiltinPrefix) + name_or_path;
}

std::string other_base(const LoraBase& base, const std::string& name, const std::string& digest) {
  return fmt::format(
      "{} has other weights than those that the adapters were trained on (digest {} here, {} there). Give "
      "the model that they were trained on; it was {}.",
      name, digest, base.digest, base.model);
}

void check_base(const LoraBase& base, const LanguageModel& opened, const std::string& place, Group& world) {
  const std::string digest = digest_frozen(opened.units(), world);
  if (digest != base.digest) throw Error(place, other_base(base, opened.info().name, digest));
}

std::unique_ptr<LanguageModel> open_lora_model(const LoraBase& base, const std::string& elsewhere,
                                               const std::string& place) {
  const std::string from = elsewhere.empty() ? base.model : elsewhere;
  if (elsewhere.empty() && !from.starts_with(kBuiltinPrefix) && !std::filesystem::exists(from)) {
    throw Error(place, fmt::format("its base was {}, which is not there now. Say where it is: --model DIR.", from));
  }
  return open_model(from, {.seed = base.seed, .lora = base.spec});
}

}  // namespace shoal::models
