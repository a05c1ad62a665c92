// See open_data.h.
#include "train/open_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <vector>

#include "base/text.h"
#include "shoal/error.h"
#include "train/synthetic_source.h"
#include "train/text_source.h"
#include "train/token_file.h"

namespace shoal::train {

namespace {

double number_of(const std::string& word, const std::string& place) {
  double number = 0;
  const auto [end, mistake] = std::from_chars(word.data(), word.data() + word.size(), number);
  if (mistake != std::errc() || end != word.data() + word.size()) {
    throw Error(place, fmt::format("\"{}\" is not a number.", word));
  }
  return number;
}

std::unique_ptr<TokenSource> open_synthetic(const std::string& settings, int64_t vocab) {
  SyntheticOptions options;
  options.vocab = vocab;
  for (const std::string& setting : settings.empty() ? std::vector<std::string>{} : split(settings, ',')) {
    const size_t equals = std::min(setting.find('='), setting.size());
    const std::string key = setting.substr(0, equals);
    const std::string place = "data synthetic " + key;
    const std::string word = equals < setting.size() ? setting.substr(equals + 1) : "";
    if (key != "tokens" && key != "surprise" && key != "seed") {
      const std::string nearest = nearest_word(key, {"tokens", "surprise", "seed"});
      throw Error(place, fmt::format("is not a setting.{} Use tokens=N, surprise=P or seed=S, with commas between.",
                                     nearest.empty() ? "" : fmt::format(" Did you mean {}?", nearest)));
    }
    const double number = number_of(word, place);
    if (key == "surprise") {
      if (!(number > 0 && number <= 1)) throw Error(place, fmt::format("{} is not in (0, 1].", word));
      options.surprise = number;
      continue;
    }
    if (number < (key == "tokens" ? 1 : 0) || number > 1e15 ||
        number != static_cast<double>(static_cast<int64_t>(number))) {
      throw Error(place, fmt::format("{} is not a whole number that fits.", word));
    }
    if (key == "tokens") options.numel = static_cast<int64_t>(number);
    if (key == "seed") options.seed = static_cast<uint64_t>(number);
  }
  return make_synthetic(options);
}

}  // namespace

std::unique_ptr<TokenSource> open_data(const DataSpec& spec, const Vocabulary& vocabulary) {
  const std::string place = "data " + spec.text;
  if (spec.kind == "synthetic") return open_synthetic(spec.rest, vocabulary.vocab);
  if (!spec.kind.empty() && spec.rest.empty()) {
    throw Error(place, fmt::format("no path is given. Write {}:PATH.", spec.kind));
  }
  if (spec.kind == "text") {
    if (!vocabulary.byte_tokens) {
      throw Error(place,
                  fmt::format("text is read as bytes, a vocabulary of {}, but {} has {} tokens. Make tokens with "
                              "its own tokenizer (`shoal tokenize`) and use tokens:FILE.",
                              kByteVocab, vocabulary.model, vocabulary.vocab));
    }
    return open_text(spec.rest);
  }
  if (spec.kind == "tokens" || (spec.kind.empty() && is_token_file(spec.rest))) {
    std::unique_ptr<TokenSource> source = open_token_file(spec.rest);
    if (source->vocab() > vocabulary.vocab) {
      throw Error(place, fmt::format("was made for a vocabulary of {}, but {} has {} tokens. Use the model's own "
                                     "tokenizer.",
                                     source->vocab(), vocabulary.model, vocabulary.vocab));
    }
    return source;
  }
  std::error_code ignored;
  if (std::filesystem::exists(spec.rest, ignored)) {  // a path alone
    const std::string& path = spec.rest;
    const bool rows = path.find(".jsonl") != std::string::npos || path.ends_with(".parquet");
    throw Error(place, rows
                           ? fmt::format("does not say what its rows hold. Write chat:{} for conversations, prompts:{} "
                                         "for prompts and answers; make tokens of texts with `shoal tokenize`.",
                                         path, path)
                           : fmt::format("does not say what it holds. Write text:{} or tokens:{}.", path, path));
  }
  throw Error(place, "is none of text:PATH, tokens:PATH, chat:FILE, prompts:FILE and synthetic. Write one of them.");
}

std::string doubt_about_tokens(const TokenSource& source, const Vocabulary& vocabulary) {
  if (std::string doubt = source.doubt(); !doubt.empty()) return doubt;
  constexpr double kPadding = 0.9;  // models round their vocabularies up, and keep rows for tokens to come
  const auto enough = static_cast<int64_t>(kPadding * static_cast<double>(vocabulary.vocab));
  if (source.vocab() == 0 || source.vocab() >= enough) return "";
  return fmt::format("{} was made with a tokenizer of {} tokens, and {} has {}: check that it is the model's own",
                     source.describe(), format_count(source.vocab()), vocabulary.model, format_count(vocabulary.vocab));
}

void check_tokens(const TokenSource& source, const Vocabulary& vocabulary, const ReaderPart& part) {
  if (source.is_checked()) return;
  const int64_t share = source.numel() / part.of + 1;
  const int64_t last = std::min(source.numel(), share * (part.index + 1));
  std::vector<int64_t> some(size_t{1} << 18);
  for (int64_t begin = share * part.index; begin < last; begin += static_cast<int64_t>(some.size())) {
    const int64_t numel = std::min<int64_t>(static_cast<int64_t>(some.size()), last - begin);
    source.read(begin, numel, some.data());
    const auto outside = std::find_if(some.begin(), some.begin() + numel,
                                      [&](int64_t token) { return token < 0 || token >= vocabulary.vocab; });
    if (outside == some.begin() + numel) continue;
    throw Error("data " + source.describe(),
                fmt::format("token {} at position {} is beyond the vocabulary of {}, {} tokens. Make the tokens with "
                            "the model's own tokenizer.",
                            *outside, begin + (outside - some.begin()), vocabulary.model, vocabulary.vocab));
  }
}

}  // namespace shoal::train
