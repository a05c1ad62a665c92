// See rope_config.h.
#include "models/dense/rope_config.h"

#include <fmt/format.h>

#include <cmath>

#include "shoal/error.h"

namespace shoal::models {

namespace {

double positive(const HfConfig& section, const char* key, std::optional<double> otherwise = {}) {
  const double value = section.number(key, otherwise);
  if (!(value > 0) || !std::isfinite(value)) section.refuse(key, "Give a number above 0.");
  return value;
}

// transformers 5 writes "rope_parameters"; before it "rope_theta" stood alone and the rest in "rope_scaling". Where
// both are given, transformers takes "rope_scaling".
HfConfig section_of(const HfConfig& config) {
  const json::Value* old = config.find("rope_scaling");
  const bool has_old = old != nullptr && !(old->is_object() && old->as_object().empty());
  return config.section(has_old ? "rope_scaling" : "rope_parameters");
}

const char* type_key_of(const HfConfig& section) { return section.find("rope_type") != nullptr ? "rope_type" : "type"; }

// "su" is what LongRoPE was called at first; Phi-3 meant it by "yarn" too.
std::string type_of(const HfConfig& section, const DenseConfig& read) {
  const std::string type = section.text(type_key_of(section), "default");
  return read.model_type == "phi3" && (type == "su" || type == "yarn") ? "longrope" : type;
}

// Where rotary keys are read: a section for all layers, or of Gemma 3 and OLMo 3 one for each type of layer.
struct RopePlace {
  const HfConfig& config;
  const HfConfig& section;
  bool nested = false;
};

// transformers lets the one beside the section win, but for nested sections. Phi-3 knows it there only.
int64_t read_original_positions(const RopePlace& at, const DenseConfig& read) {
  constexpr const char* kKey = "original_max_position_embeddings";
  if (read.model_type == "phi3") return at.config.count(kKey, 4096);
  const bool beside = !at.nested && at.config.find(kKey) != nullptr;
  return (beside ? at.config : at.section).count(kKey, read.max_positions);
}

Llama3Scaling read_llama3(const RopePlace& at, const DenseConfig& read) {
  const HfConfig& section = at.section;
  Llama3Scaling scaling;
  scaling.factor = positive(section, "factor");
  scaling.low_freq_factor = positive(section, "low_freq_factor");
  scaling.high_freq_factor = section.number("high_freq_factor");
  scaling.original_max_positions = read_original_positions(at, read);
  if (!(scaling.high_freq_factor > scaling.low_freq_factor)) {
    section.refuse("high_freq_factor", "Give a number above low_freq_factor.");
  }
  return scaling;
}

// How much cosines and sines grow with the stretch, by the paper.
double yarn_scale(double factor, double mscale) { return factor <= 1 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0; }

YarnScaling read_yarn(const RopePlace& at, const DenseConfig& read) {
  const HfConfig& section = at.section;
  YarnScaling yarn;
  yarn.original_max_positions = read_original_positions(at, read);
  const double ratio = static_cast<double>(read.max_positions) / static_cast<double>(yarn.original_max_positions);
  yarn.factor = positive(section, "factor", ratio);
  const double mscale = section.number("mscale", 0.0), all = section.number("mscale_all_dim", 0.0);
  const double by_both = mscale != 0 && all != 0 ? yarn_scale(yarn.factor, mscale) / yarn_scale(yarn.factor, all)
                                                 : yarn_scale(yarn.factor, 1);
  yarn.attention_factor = positive(section, "attention_factor", by_both);
  yarn.beta_fast = positive(section, "beta_fast", 32);
  yarn.beta_slow = positive(section, "beta_slow", 1);
  yarn.truncate = section.flag("truncate", true);
  if (at.nested && !yarn.truncate) section.refuse("truncate", "Use true: transformers does not read it here.");
  return yarn;
}

std::vector<double> read_factors(const HfConfig& section, const char* key, size_t count) {
  const json::Value* list = section.find(key);
  const std::string wanted = fmt::format("Give {} numbers above 0, one for each pair of dimensions that turns.", count);
  if (list == nullptr || !list->is_array() || list->as_array().size() != count) section.refuse(key, wanted);
  std::vector<double> factors;
  for (const json::Value& factor : list->as_array()) {
    if (!factor.is_number() || !(factor.as_number() > 0)) section.refuse(key, wanted);
    factors.push_back(factor.as_number());
  }
  return factors;
}

// What transformers takes where the config does not say it.
double longrope_scale(double factor, double original) {
  return factor <= 1 ? 1.0 : std::sqrt(1 + std::log(factor) / std::log(original));
}

LongScaling read_longrope(const RopePlace& at, const DenseConfig& read, size_t pairs) {
  LongScaling scaling;
  scaling.short_factors = read_factors(at.section, "short_factor", pairs);
  scaling.long_factors = read_factors(at.section, "long_factor", pairs);
  scaling.original_max_positions = read_original_positions(at, read);
  const auto original = static_cast<double>(scaling.original_max_positions);
  const double factor = positive(at.section, "factor", static_cast<double>(read.max_positions) / original);
  scaling.attention_factor = positive(at.section, "attention_factor", longrope_scale(factor, original));
  return scaling;
}

DynamicScaling read_dynamic(const HfConfig& section, int64_t max_positions) {
  constexpr double kMostPositions = static_cast<double>(int64_t{1} << 40);
  const double factor = positive(section, "factor");
  if (factor < 1) section.refuse("factor", "Give 1 or more.");
  if (factor * static_cast<double>(max_positions) > kMostPositions) section.refuse("factor", "Give a smaller one.");
  return {factor, max_positions};
}

// Of one section; theta and the part that turns are known.
void read_type(const RopePlace& at, const DenseConfig& read, RopeConfig& rope) {
  const HfConfig& section = at.section;
  const std::string type = type_of(section, read);
  const int64_t turned = rope.turned_of(read.head_dim);
  if (type == "llama3") {
    rope.scaling = read_llama3(at, read);
  } else if (type == "linear") {
    rope.linear_factor = positive(section, "factor");
  } else if (type == "dynamic") {
    rope.dynamic = read_dynamic(section, read.max_positions);
    if (turned <= 2) section.refuse(type_key_of(section), "It needs more than one pair of dimensions that turns.");
  } else if (type == "yarn") {
    rope.yarn = read_yarn(at, read);
    if (rope.theta <= 1) {
      throw Error(at.config.origin() + " rope_theta",
                  fmt::format("YaRN divides by the logarithm of {}. Give a number above 1.", rope.theta));
    }
  } else if (type == "longrope") {
    rope.longrope = read_longrope(at, read, static_cast<size_t>(turned / 2));
  } else if (type != "default") {
    section.refuse(type_key_of(section),
                   "Use \"default\", \"linear\", \"dynamic\", \"yarn\", \"llama3\" or \"longrope\".");
  }
}

double read_theta(const HfConfig& config, const HfConfig& section, double otherwise) {
  const double theta = section.number("rope_theta", otherwise);
  if (!(theta > 0)) throw Error(config.origin() + " rope_theta", fmt::format("{} is not above 0.", theta));
  return theta;
}

void read_partial(const HfConfig& config, const HfConfig& section, const DenseFamily& family, DenseConfig& read) {
  if (!family.partial_rotary) {
    for (const HfConfig* place : {&config, &section}) {
      if (place->number("partial_rotary_factor", 1.0) != 1.0) place->refuse("partial_rotary_factor", "Use 1.");
    }
    return;
  }
  const char* old_key = read.model_type == "gpt_neox" ? "rotary_pct" : "partial_rotary_factor";
  const double part = section.number("partial_rotary_factor", config.number(old_key, read.rope.partial));
  const bool is_part = part > 0 && part <= 1;
  const int64_t turned = is_part ? static_cast<int64_t>(static_cast<double>(read.head_dim) * part) : 0;
  if (turned < 2 || turned % 2 != 0) {
    const HfConfig& place = section.find("partial_rotary_factor") != nullptr ? section : config;
    place.refuse(section.find("partial_rotary_factor") != nullptr ? "partial_rotary_factor" : old_key,
                 fmt::format("An even number of a head's {} dimensions must turn.", read.head_dim));
  }
  read.rope.partial = part;
}

// Gemma 3, OLMo 3: a section for each type of layer. Before transformers 5 "rope_theta" and "rope_scaling" were of the
// layers that see all, Gemma's "rope_local_base_freq" of the others.
void read_two(const HfConfig& config, const DenseFamily& family, DenseConfig& read) {
  const HfConfig parameters = config.section("rope_parameters");
  const HfConfig global = parameters.section("full_attention"), local = parameters.section("sliding_attention");
  const HfConfig old = config.section("rope_scaling");
  const HfConfig& of_all = old.root().as_object().empty() ? global : old;
  if (!parameters.root().as_object().empty() && parameters.find("full_attention") == nullptr &&
      parameters.find("sliding_attention") == nullptr) {
    config.refuse("rope_parameters", "Give a section \"full_attention\" and one \"sliding_attention\".");
  }
  for (const HfConfig* place : {&config, &global, &local, &old}) {
    if (place->number("partial_rotary_factor", 1.0) != 1.0) place->refuse("partial_rotary_factor", "Use 1.");
  }
  if (old.find("rope_type") == nullptr && old.text("type", "default") != "default") {
    old.refuse("type", "Write it as rope_type: transformers 4 reads this one here, and 5 does not.");
  }
  // transformers lays rope_scaling over the section: what stands in that alone would count as well.
  for (const json::Member& member : global.root().as_object()) {
    const bool is_type = member.key == "rope_type" || member.key == "type";
    const bool same = old.root().find(member.key) != nullptr && *old.root().find(member.key) == member.value;
    if (old.root().as_object().empty() || is_type || member.key == "rope_theta" || same) continue;
    config.refuse("rope_scaling", "Leave it out: rope_parameters has a section \"full_attention\" already.");
  }
  read.rope.theta =
      read_theta(config, of_all, global.number("rope_theta", config.number("rope_theta", read.rope.theta)));
  const char* local_key = family.keys.local_theta;
  read.local_rope.theta = read_theta(
      config, local, *local_key != 0 ? config.number(local_key, read.local_rope.theta) : read.local_rope.theta);
  read_type({config, of_all, /*nested=*/true}, read, read.rope);
  read_type({config, local, /*nested=*/true}, read, read.local_rope);
}

}  // namespace

void read_ropes(const HfConfig& config, const DenseFamily& family, DenseConfig& read) {
  if (family.two_ropes) {
    read_two(config, family, read);
  } else {
    const HfConfig section = section_of(config);
    for (const char* type : {"full_attention", "sliding_attention"}) {
      if (section.find(type) != nullptr) section.refuse(type, "All layers of this family turn alike.");
    }
    const char* old_key = read.model_type == "gpt_neox" ? "rotary_emb_base" : "rope_theta";
    read.rope.theta = read_theta(config, section, config.number(old_key, read.rope.theta));
    read_partial(config, section, family, read);
    read_type({config, section}, read, read.rope);
  }
  if (read.rope.dynamic) {
    read.max_positions = static_cast<int64_t>(static_cast<double>(read.max_positions) * read.rope.dynamic->factor);
  }
}

void export_rope(const HfConfig& config, const DenseConfig& read, json::Value& exported) {
  const HfConfig section = section_of(config);
  const std::string type = type_of(section, read);
  json::Value rope = json::Object{};
  rope.set("rope_type", type);
  rope.set("rope_theta", read.rope.theta);
  if (read.rope.scaling) {
    rope.set("factor", read.rope.scaling->factor);
    rope.set("low_freq_factor", read.rope.scaling->low_freq_factor);
    rope.set("high_freq_factor", read.rope.scaling->high_freq_factor);
    rope.set("original_max_position_embeddings", read.rope.scaling->original_max_positions);
  }
  for (const json::Member& member : section.root().as_object()) {
    const bool known = member.key == "type" || rope.find(member.key) != nullptr;
    if (!known && type != "default" && !read.rope.scaling) rope.set(member.key, member.value);
  }
  if (dense_family_of(read).partial_rotary) {
    rope.set("partial_rotary_factor", read.rope.partial);
    exported.set(read.model_type == "gpt_neox" ? "rotary_pct" : "partial_rotary_factor", read.rope.partial);
  }
  if (read.model_type == "gpt_neox") exported.set("rotary_emb_base", read.rope.theta);
  exported.set("rope_parameters", rope);
  exported.set("rope_theta", read.rope.theta);
  exported.erase("rope_scaling");
  if (type == "default") return;
  rope.erase("rope_theta");
  if (read.rope.longrope && read.model_type == "phi3") {
    const LongScaling& scaling = *read.rope.longrope;
    const auto original = static_cast<double>(scaling.original_max_positions);
    exported.set("original_max_position_embeddings", scaling.original_max_positions);
    // transformers 4 takes these three and no others, and 5 the rest from the top level. Another factor of attention
    // has no place there: it stays, and 4 refuses it.
    if (scaling.attention_factor == longrope_scale(static_cast<double>(read.max_positions) / original, original)) {
      json::Value three = json::Object{};
      three.set("type", type);
      for (const char* key : {"short_factor", "long_factor"}) three.set(key, *section.find(key));
      rope = std::move(three);
    }
  }
  exported.set("rope_scaling", rope);
}

}  // namespace shoal::models
