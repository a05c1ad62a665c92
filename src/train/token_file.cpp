// See token_file.h.
#include "train/token_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

#include "base/check.h"
#include "base/json.h"
#include "base/mapped_file.h"
#include "shoal/error.h"

namespace shoal::train {

namespace {

static_assert(std::endian::native == std::endian::little, "token files are little-endian");

struct Header {
  std::array<char, 8> magic;
  uint32_t version;
  uint32_t width;
  uint64_t vocab;
  uint64_t count;
};
static_assert(sizeof(Header) == 32);

constexpr std::array<char, 8> kMagic = {'S', 'H', 'O', 'A', 'L', 'T', 'O', 'K'};
constexpr uint32_t kVersion = 1;
constexpr uint64_t kLargestVocab = uint64_t{1} << 32;

std::string place_of(const std::string& path) { return "data tokens:" + path; }

struct Shape {
  size_t begin = 0;   // byte of the first token
  size_t width = 2;   // bytes of a token
  int64_t vocab = 0;  // 0: not said
  int64_t numel = 0;
};

struct Sidecar {
  size_t width = 0;
  int64_t vocab = 0;
};

std::string sidecar_path(const std::string& path) { return path + ".json"; }

bool read_sidecar(const std::string& path, Sidecar& sidecar) {
  const std::string file = sidecar_path(path);
  std::ifstream stream(file);
  if (!stream) return false;
  std::stringstream text;
  text << stream.rdbuf();
  const json::Value value = json::parse(text.str(), file);
  const json::Value* dtype = value.is_object() ? value.find("dtype") : nullptr;
  const std::string name = dtype != nullptr && dtype->is_text() ? dtype->as_text() : "";
  if (name != "uint16" && name != "uint32") {
    throw Error(place_of(path), fmt::format("{} does not say \"dtype\": \"uint16\" or \"uint32\". Correct it.", file));
  }
  sidecar.width = name == "uint16" ? 2 : 4;
  if (const json::Value* vocab = value.find("vocab")) {
    if (!vocab->is_integer() || vocab->as_integer() < 1 || static_cast<uint64_t>(vocab->as_integer()) > kLargestVocab) {
      throw Error(place_of(path), fmt::format("\"vocab\" in {} is not a number of tokens. Correct it.", file));
    }
    sidecar.vocab = vocab->as_integer();
  }
  return true;
}

Shape shape_by_header(const std::string& path, const MappedFile& mapping) {
  Header header{};
  std::memcpy(&header, mapping.data(), sizeof(header));
  const auto refuse = [&](const std::string& what) {
    throw Error(place_of(path), what + " Write the file again, with `shoal tokenize`.");
  };
  if (header.version != kVersion) {
    refuse(fmt::format("its header has version {}; this program reads {}.", header.version, kVersion));
  }
  if (header.width != 2 && header.width != 4) {
    refuse(fmt::format("its header says {} bytes a token; only 2 and 4 exist.", header.width));
  }
  if (header.vocab < 1 || header.vocab > kLargestVocab) {
    refuse(fmt::format("its header says a vocabulary of {}, which is none.", header.vocab));
  }
  const uint64_t held = (mapping.nbytes() - sizeof(Header)) / header.width;
  if (held != header.count || (mapping.nbytes() - sizeof(Header)) % header.width != 0) {
    refuse(fmt::format("its header says {} tokens of {} bytes, but {} bytes follow: it is truncated or damaged.",
                       header.count, header.width, mapping.nbytes() - sizeof(Header)));
  }
  return {sizeof(Header), header.width, static_cast<int64_t>(header.vocab), static_cast<int64_t>(header.count)};
}

Shape shape_of(const std::string& path, const MappedFile& mapping) {
  Sidecar sidecar;
  const bool has_sidecar = read_sidecar(path, sidecar);
  const bool has_header =
      mapping.nbytes() >= sizeof(Header) && std::memcmp(mapping.data(), kMagic.data(), kMagic.size()) == 0;
  if (has_header) {
    const Shape shape = shape_by_header(path, mapping);
    if (has_sidecar && (sidecar.width != shape.width || (sidecar.vocab != 0 && sidecar.vocab != shape.vocab))) {
      throw Error(place_of(path), fmt::format("{} contradicts the file's header. Remove it.", sidecar_path(path)));
    }
    return shape;
  }
  if (!has_sidecar) {
    throw Error(place_of(path), fmt::format("has no header, and there is no {} to say what it holds. Write it with "
                                            "`shoal tokenize`, or add {{\"dtype\": \"uint16\"}} there.",
                                            sidecar_path(path)));
  }
  if (mapping.nbytes() % sidecar.width != 0) {
    throw Error(place_of(path), fmt::format("its {} bytes are no whole number of tokens of {} bytes. Correct {}.",
                                            mapping.nbytes(), sidecar.width, sidecar_path(path)));
  }
  return {0, sidecar.width, sidecar.vocab, static_cast<int64_t>(mapping.nbytes() / sidecar.width)};
}

class TokenFile final : public TokenSource {
 public:
  explicit TokenFile(const std::string& path)
      : path_(path), mapping_(path, place_of(path)), shape_(shape_of(path, mapping_)) {
    if (shape_.vocab == 0) shape_.vocab = largest() + 1;
  }

  int64_t numel() const override { return shape_.numel; }
  int64_t vocab() const override { return shape_.vocab; }
  void read(int64_t begin, int64_t numel, int64_t* tokens) const override {
    SHOAL_CHECK(begin >= 0 && numel >= 0 && begin + numel <= shape_.numel);
    const char* from = mapping_.data() + shape_.begin + static_cast<size_t>(begin) * shape_.width;
    if (shape_.width == 2) {
      widen<uint16_t>(from, numel, tokens);
    } else {
      widen<uint32_t>(from, numel, tokens);
    }
  }
  std::string describe() const override { return "tokens:" + path_; }

 private:
  // By memcpy: a headerless file may be mapped, and a token read, at any address.
  template <typename Token>
  static void widen(const char* from, int64_t numel, int64_t* tokens) {
    for (int64_t i = 0; i < numel; ++i, from += sizeof(Token)) {
      Token token;
      std::memcpy(&token, from, sizeof(token));
      tokens[i] = token;
    }
  }
  int64_t largest() const {
    std::vector<int64_t> some(1 << 16);
    int64_t largest = -1;
    for (int64_t begin = 0; begin < shape_.numel; begin += static_cast<int64_t>(some.size())) {
      const int64_t numel = std::min<int64_t>(static_cast<int64_t>(some.size()), shape_.numel - begin);
      read(begin, numel, some.data());
      largest = std::max(largest, *std::max_element(some.begin(), some.begin() + numel));
    }
    return largest;
  }

  std::string path_;
  MappedFile mapping_;
  Shape shape_;
};

size_t width_for(int64_t vocab) { return vocab <= (int64_t{1} << 16) ? 2 : 4; }

}  // namespace

std::unique_ptr<TokenSource> open_token_file(const std::string& path) { return std::make_unique<TokenFile>(path); }

TokenFileWriter::TokenFileWriter(const std::string& path, int64_t vocab)
    : path_(path), temporary_path_(fmt::format("{}.part-{}", path, ::getpid())), vocab_(vocab) {
  if (vocab < 1 || static_cast<uint64_t>(vocab) > kLargestVocab) {
    throw Error(place_of(path), fmt::format("a vocabulary of {} does not fit 32 bits. Give a smaller one.", vocab));
  }
  file_ = std::fopen(temporary_path_.c_str(), "wb");
  if (file_ == nullptr) {
    throw Error(place_of(path), fmt::format("{} cannot be made: {}.", temporary_path_, std::strerror(errno)));
  }
  const Header blank{};
  write(&blank, sizeof(blank));
}

TokenFileWriter::~TokenFileWriter() {
  if (file_ == nullptr) return;
  std::fclose(file_);
  std::remove(temporary_path_.c_str());
}

void TokenFileWriter::write(const void* bytes, size_t nbytes) {
  if (std::fwrite(bytes, 1, nbytes, file_) != nbytes) {
    throw Error(place_of(path_), fmt::format("cannot be written: {}.", std::strerror(errno)));
  }
}

void TokenFileWriter::append(std::span<const int64_t> tokens) {
  const auto narrow = [&](auto sample) {
    std::vector<decltype(sample)> narrowed;
    narrowed.reserve(tokens.size());
    for (const int64_t token : tokens) {
      if (token < 0 || token >= vocab_) {
        throw Error(place_of(path_), fmt::format("token {} is outside the vocabulary of {}.", token, vocab_));
      }
      narrowed.push_back(static_cast<decltype(sample)>(token));
    }
    write(narrowed.data(), narrowed.size() * sizeof(sample));
  };
  if (width_for(vocab_) == 2) {
    narrow(uint16_t{});
  } else {
    narrow(uint32_t{});
  }
  numel_ += static_cast<int64_t>(tokens.size());
}

void TokenFileWriter::finish() {
  SHOAL_CHECK(file_ != nullptr);
  const Header header{kMagic, kVersion, static_cast<uint32_t>(width_for(vocab_)), static_cast<uint64_t>(vocab_),
                      static_cast<uint64_t>(numel_)};
  std::rewind(file_);
  write(&header, sizeof(header));
  const bool flushed = std::fflush(file_) == 0 && ::fsync(::fileno(file_)) == 0;
  const int reason = errno;
  if (!flushed) throw Error(place_of(path_), fmt::format("cannot be written: {}.", std::strerror(reason)));
  std::fclose(file_);
  file_ = nullptr;
  std::filesystem::rename(temporary_path_, path_);
}

}  // namespace shoal::train
