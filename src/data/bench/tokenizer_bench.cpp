#include <algorithm>
#include <barrier>
#include <thread>

#include "data/bench/data_bench.h"
#include "data/sample_text.h"
#include "data/tokenizer/quick_model.h"
#include "data/tokenizer/sentencepiece.h"
#include "data/tokenizer/tokenizer.h"

namespace quintet {
namespace {

constexpr std::size_t kDocumentBytes = 1500;
// The model is counted from other text than is measured.
constexpr std::uint64_t kModelSeed = 1, kTextSeed = 2;

std::string generate(std::span<const std::string_view> languages, std::uint64_t seed,
                     std::size_t bytes, std::size_t document) {
  std::vector<SampleText> sources(languages.begin(), languages.end());
  std::string text;
  text.reserve(bytes + 2 * document);
  for (std::uint64_t i = 0; text.size() < bytes; ++i) {
    sources[i % sources.size()].append_document(seed, i, document, text);
    text += '\n';
  }
  return text;
}

Status encode_lines(std::span<const std::string_view> lines, Encoder& encoder,
                    Buffer<std::int32_t>& ids) {
  for (const std::string_view line : lines) {
    ids.clear();
    QT_TRY(encoder.encode(line, ids));
  }
  return {};
}

}  // namespace

std::vector<std::string_view> BenchText::lines(std::size_t bytes) const {
  std::vector<std::string_view> lines;
  std::string_view rest = text;
  for (std::size_t done = 0; !rest.empty() && done < bytes;) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    lines.push_back(rest.substr(0, end));
    done += end + 1;
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return lines;
}

BenchText single_language_text(std::size_t bytes) {
  constexpr std::string_view kLanguage[] = {"en"};
  return {"one language", generate(kLanguage, kTextSeed, bytes, kDocumentBytes)};
}

BenchText mixed_text(std::size_t bytes) {
  return {"many languages", generate(SampleText::languages(), kTextSeed, bytes, kDocumentBytes)};
}

Result<std::string> counted_model(std::int64_t vocabulary) {
  constexpr std::size_t kDocument = 400;
  const std::size_t bytes =
      std::max<std::size_t>(static_cast<std::size_t>(vocabulary) * 200, 1 << 20);
  QT_ASSIGN(const std::string rules, builtin_charsmap("nmt_nfkc"));
  QT_ASSIGN(const ModelProto model,
            make_quick_model(generate(SampleText::languages(), kModelSeed, bytes, kDocument),
                             {static_cast<std::size_t>(vocabulary), true, rules}));
  return serialize_model(model);
}

Result<TokenizerRates> bench_tokenizer(const BenchText& text, std::size_t bytes,
                                       const std::string& model, std::int64_t rounds) {
  QT_ASSIGN(const SentencePiece library, SentencePiece::load(model, "model"));
  QT_ASSIGN(const Tokenizer tokenizer, Tokenizer::create(model, "model"));
  const std::vector<std::string_view> lines = text.lines(bytes);
  TokenizerRates rates;
  rates.name = text.name;
  rates.lines = static_cast<std::int64_t>(lines.size());
  std::vector<std::int32_t> expected;
  Buffer<std::int32_t> ids;
  {
    Encoder encoder(tokenizer);
    for (const std::string_view line : lines) {
      rates.bytes += static_cast<std::int64_t>(line.size() + 1);
      ids.clear();
      QT_TRY(encoder.encode(line, ids));
      QT_TRY(library.encode(line, expected));
      rates.tokens += static_cast<std::int64_t>(ids.size());
      if (!std::equal(ids.span().begin(), ids.span().end(), expected.begin(), expected.end())) {
        ++rates.differing;
      }
    }
  }
  for (std::int64_t round = 0; round < rounds; ++round) {
    {
      const Stopwatch watch(Stopwatch::Of::kThread);
      for (const std::string_view line : lines) QT_TRY(library.encode(line, expected));
      rates.library.add(watch.elapsed());
    }
    const Stopwatch watch(Stopwatch::Of::kThread);
    Encoder encoder(tokenizer);  // its cache begins empty
    QT_TRY(encode_lines(lines, encoder, ids));
    rates.ours.add(watch.elapsed());
  }
  return rates;
}

Result<ThreadRates> bench_threads(const BenchText& text, const std::string& model, int threads,
                                  std::int64_t rounds) {
  QT_ASSIGN(const Tokenizer tokenizer, Tokenizer::create(model, "model"));
  const std::vector<std::string_view> lines = text.lines(text.text.size());
  const std::span<const std::string_view> before = std::span(lines).first(lines.size() / 2),
                                          measured = std::span(lines).subspan(lines.size() / 2);
  ThreadRates rates;
  rates.threads = threads;
  for (const std::string_view line : before)
    rates.warm_bytes += static_cast<std::int64_t>(line.size() + 1);
  for (const std::string_view line : measured)
    rates.bytes += static_cast<std::int64_t>(line.size() + 1);
  // Every thread has an encoder of its own, which reads the first half of the text beforehand: in a
  // long run a cache has met most words that are to come. Then each takes its share of the rest.
  const auto run = [&](int count) -> Result<Times> {
    std::vector<Status> statuses(static_cast<std::size_t>(count));
    std::vector<double> cpu(static_cast<std::size_t>(count));
    std::barrier begin(count + 1);
    std::vector<std::jthread> pool;
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
      pool.emplace_back([&, i] {
        const std::size_t share = measured.size() / static_cast<std::size_t>(count);
        const std::size_t end = i + 1 == statuses.size() ? measured.size() : (i + 1) * share;
        Encoder encoder(tokenizer);
        Buffer<std::int32_t> ids;
        statuses[i] = encode_lines(before, encoder, ids);
        begin.arrive_and_wait();
        if (!statuses[i].ok()) return;
        const Stopwatch watch(Stopwatch::Of::kThread);
        statuses[i] = encode_lines(measured.subspan(i * share, end - i * share), encoder, ids);
        cpu[i] = watch.elapsed().cpu;
      });
    }
    begin.arrive_and_wait();
    const Stopwatch watch(Stopwatch::Of::kProcess);
    pool.clear();  // joins
    for (const Status& status : statuses) QT_TRY(status);
    return Times{watch.elapsed().wall, *std::max_element(cpu.begin(), cpu.end())};
  };
  for (std::int64_t round = 0; round < rounds; ++round) {
    QT_ASSIGN(const Times one, run(1));
    rates.one.add(one);
    QT_ASSIGN(const Times all, run(threads));
    rates.all.add(all);
  }
  return rates;
}

}  // namespace quintet
