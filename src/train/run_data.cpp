// See run_data.h.
#include "train/run_data.h"

#include <fmt/format.h>

#include <array>

#include "base/text.h"
#include "shoal/error.h"
#include "train/data_spec.h"
#include "train/mixed_samples.h"
#include "train/packed_samples.h"
#include "train/position.h"

namespace shoal::train {

namespace {

std::unique_ptr<TokenSource> open_source(const DataSpec& spec, const Vocabulary& vocabulary,
                                         const TokenizerPlace& place) {
  if (spec.kind != "chat" && spec.kind != "prompts") return open_data(spec, vocabulary);
  if (spec.rest.empty()) throw Error("data " + spec.text, fmt::format("no path is given. Write {}:FILE.", spec.kind));
  const std::string made = token_file_of(spec, place);
  return open_data({.text = "tokens:" + made, .kind = "tokens", .rest = made}, vocabulary);
}

bool is_packed(const TokenSource& tokens, Packing packing) { return tokens.has_mask() || packing == Packing::on; }

// Samples of one source, and what is to be said about them.
std::unique_ptr<Samples> samples_of(const TokenSource& tokens, const CutOptions& cut, std::vector<std::string>& said) {
  if (!is_packed(tokens, cut.packing)) return cut_windows(tokens, cut);
  auto packed = std::make_unique<PackedSamples>(tokens, cut);
  said.push_back(fmt::format("{}: {}", tokens.describe(), describe(packed->facts(), cut.sequence)));
  return packed;
}

// Packed rows depend on where documents end, on what is learned of each, and on which are kept for validation, too.
std::string fingerprint_of(const TokenSource& tokens, const CutOptions& cut) {
  const std::string plain = fingerprint_of(tokens);
  if (!is_packed(tokens, cut.packing)) return plain;
  uint64_t hash = hash_text(fmt::format("{} {}", cut.packing == Packing::off ? "one a row" : "packed", cut.validation));
  for (int64_t document = 0; document < tokens.documents(); ++document) {
    const int64_t begin = tokens.document_begin(document);
    const int64_t numel = tokens.document_begin(document + 1) - begin;
    const std::array<int64_t, 3> facts = {begin, numel, tokens.count_learned(begin, numel)};
    hash = hash_text({reinterpret_cast<const char*>(facts.data()), sizeof(facts)}, hash);
  }
  return fmt::format("{}, {} documents {:016x}, {} learned", plain, tokens.documents(), hash,
                     tokens.count_learned(0, tokens.numel()));
}

}  // namespace

std::string RunData::describe() const {
  std::vector<std::string> names;
  for (const DataSource& source : sources) {
    names.push_back(source.tokens->describe() + (sources.size() > 1 ? fmt::format(" x {}", source.weight) : ""));
  }
  return join(names, ", ");
}

int64_t RunData::numel() const {
  int64_t numel = 0;
  for (const DataSource& source : sources) numel += source.tokens->numel();
  return numel;
}

RunData open_run_data(const std::string& data, const Vocabulary& vocabulary, const CutOptions& cut,
                      const TokenizerPlace& place) {
  RunData made;
  std::vector<std::unique_ptr<Samples>> samples;
  std::vector<double> weights;
  std::vector<std::string> fingerprints;
  const std::vector<DataSpec> specs = parse_data(data);
  for (const DataSpec& spec : specs) {
    CutOptions own = cut;
    own.seed += made.sources.size();
    made.sources.push_back({open_source(spec, vocabulary, place), spec.weight});
    const TokenSource& tokens = *made.sources.back().tokens;
    if (std::string doubt = doubt_about_tokens(tokens, vocabulary); !doubt.empty()) made.said.push_back(doubt);
    samples.push_back(samples_of(tokens, own, made.said));
    weights.push_back(spec.weight);
    fingerprints.push_back(fingerprint_of(tokens, cut) + (specs.size() > 1 ? fmt::format(" x {}", spec.weight) : ""));
    if (specs.size() > 1 && samples.back()->train() == 0) {
      throw Error("data " + spec.text,
                  fmt::format("{} no training sample of {} tokens. Leave it out, or give a shorter "
                              "--sequence.",
                              samples.back()->made_of(), cut.sequence));
    }
  }
  made.fingerprint = join(fingerprints, "; ");
  if (samples.size() == 1) {
    made.samples = std::move(samples[0]);
  } else {
    made.samples = std::make_unique<MixedSamples>(std::move(samples), weights, cut.seed);
  }
  return made;
}

void check_tokens(const RunData& data, const Vocabulary& vocabulary, const ReaderPart& part) {
  for (const DataSource& source : data.sources) check_tokens(*source.tokens, vocabulary, part);
}

}  // namespace shoal::train
