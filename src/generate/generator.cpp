#include "generate/generator.h"

#include <algorithm>
#include <map>

#include <fmt/ranges.h>

#include "base/bf16.h"
#include "base/check.h"
#include "base/index.h"
#include "base/tensor_files.h"
#include "model/pretrained.h"
#include "passes/finish.h"
#include "passes/memory_plan.h"
#include "program/verifier.h"
#include "runtime/backend.h"

namespace quintet {
namespace {

std::unique_ptr<Program> compiled(Program program, const Target& target) {
  drop_first_addends(program);
  insert_waits(program);
  remove_unused_tensors(program);
  plan_memory(program, *make_backend(target));
  const auto findings = verify(program);
  QT_CHECK(findings.empty(), "the compiled program is unsound:\n  {}", fmt::join(findings, "\n  "));
  return std::make_unique<Program>(std::move(program));
}

TensorId named(const Program& program, const std::string& name) {
  const TensorId tensor = program.find(name);
  QT_CHECK(tensor != kNone, "no tensor {}", name);
  return tensor;
}

// The weights of both programs must be all that the files have.
Status check_weights(const TensorFiles& files, const Program& encode, const Program& decode) {
  std::map<std::string, std::vector<std::int64_t>> shapes;
  for (const Program* program : {&encode, &decode}) {
    for (const Unit& unit : program->units) {
      for (const Weight& weight : unit.weights) {
        auto& dims = shapes[weight.name];
        dims.clear();
        for (int i = 0; i < weight.shape.rank(); ++i) dims.push_back(weight.shape[i]);
      }
    }
  }
  std::vector<TensorFiles::Wanted> wanted;
  for (const auto& [name, shape] : shapes) wanted.push_back({name, shape});
  return files.expect(wanted);
}

// Fills the weights of a program, piece by piece: no weight is whole in host memory.
Status load_weights(TensorFiles& files, Executor& executor) {
  constexpr std::int64_t kPiece = 1 << 20;
  const Program& program = executor.program();
  std::vector<float> values;
  std::vector<bf16> rounded;
  for (const Unit& unit : program.units) {
    for (const Weight& weight : unit.weights) {
      const DType dtype = program.tensor(unit.params).dtype;
      for (std::int64_t first = 0; first < weight.size(); first += kPiece) {
        values.resize(index(std::min(kPiece, weight.size() - first)));
        QT_TRY(files.read(weight.name, first, values));
        const std::int64_t offset = (weight.offset + first) * size_of(dtype);
        if (dtype == DType::kF32) {
          executor.write(unit.params, offset, std::as_bytes(std::span(values)));
        } else {
          rounded.clear();
          for (const float value : values) rounded.emplace_back(value);
          executor.write(unit.params, offset, std::as_bytes(std::span(rounded)));
        }
      }
    }
  }
  return {};
}

}  // namespace

Result<Generator> Generator::open(const Path& folder, const GenerateOptions& options) {
  Generator generator;
  generator.options_ = options;
  QT_ASSIGN(T5Config model, load_model_config(folder.string()));
  if (model.d_kv > cached_attention::kMaxHeadDim) {
    return bad_input("{}: heads of {} values; generation takes up to {}", folder.string(),
                     model.d_kv, cached_attention::kMaxHeadDim);
  }
  generator.model_ = std::make_unique<T5Config>(std::move(model));
  QT_ASSIGN(TensorFiles weights, open_pretrained(folder, *generator.model_, true));
  generator.world_ = make_single_world();
  const GenerationShape& shape = options.shape;
  generator.encode_ =
      compiled(emit_t5_encoder(*generator.model_, shape, options.dtype), options.target);
  generator.decode_ =
      compiled(emit_t5_decoder_step(*generator.model_, shape, options.dtype), options.target);
  QT_TRY(check_weights(weights, *generator.encode_, *generator.decode_));
  QT_ASSIGN(generator.encoder_, make_executor(*generator.encode_, *generator.world_));
  QT_ASSIGN(generator.decoder_, make_executor(*generator.decode_, *generator.world_));
  QT_TRY(load_weights(weights, *generator.encoder_));
  QT_TRY(load_weights(weights, *generator.decoder_));
  const Program& decode = *generator.decode_;
  generator.position_ = named(decode, kPositionName);
  if (shape.beams > 1) generator.rows_ = named(decode, kRowsName);
  generator.words_ = named(decode, kWordsName);
  generator.log_probabilities_ = named(decode, kLogProbabilitiesName);
  return generator;
}

Status Generator::read_sources(std::span<const std::vector<std::int32_t>> sources) {
  const GenerationShape& shape = options_.shape;
  QT_CHECK(static_cast<std::int64_t>(sources.size()) <= shape.sequences, "{} sources for {}",
           sources.size(), shape.sequences);
  std::vector<std::int32_t> ids(index(shape.sequences * shape.source),
                                static_cast<std::int32_t>(model_->pad_id));
  std::vector<std::int32_t> lengths(index(shape.sequences), 1);
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const auto& source = sources[i];
    if (source.empty() || static_cast<std::int64_t>(source.size()) > shape.source) {
      return bad_input("source {}: {} tokens; expected 1 to {}", i, source.size(), shape.source);
    }
    for (const std::int32_t id : source) {
      if (id < 0 || id >= model_->vocab_size) {
        return bad_input("source {}: id {} is not in the model's vocabulary of {}", i, id,
                         model_->vocab_size);
      }
    }
    std::copy(source.begin(), source.end(),
              ids.begin() + static_cast<std::ptrdiff_t>(i * index(shape.source)));
    lengths[i] = static_cast<std::int32_t>(source.size());
  }
  encoder_->write_all<std::int32_t>(encode_->io.source_ids, ids);
  encoder_->write_all<std::int32_t>(encode_->io.source_lengths, lengths);
  QT_TRY(encoder_->run());
  QT_TRY(encoder_->wait());
  // Each beam of a source sees the same keys and values.
  for (std::int64_t layer = 0; layer < model_->decoder_layers; ++layer) {
    const TensorId from = named(*encode_, memory_name(layer));
    const TensorId to = named(*decode_, memory_name(layer));
    const std::int64_t bytes = encode_->tensor(from).bytes() / shape.sequences;
    for (std::int64_t row = 0; row < shape.rows(); ++row)
      decoder_->copy_from(*encoder_, from, row / shape.beams * bytes, to, row * bytes, bytes);
  }
  std::vector<std::int32_t> row_lengths;
  for (std::int64_t row = 0; row < shape.rows(); ++row)
    row_lengths.push_back(lengths[index(row / shape.beams)]);
  decoder_->write_all<std::int32_t>(decode_->io.source_lengths, row_lengths);
  return {};
}

Result<Generator::Candidates> Generator::advance(std::span<const std::int32_t> words,
                                                 std::int64_t position) {
  decoder_->write_all<std::int32_t>(decode_->io.target_ids, words);
  const auto at = static_cast<std::int32_t>(position);
  decoder_->write_all<std::int32_t>(position_, std::span(&at, 1));
  QT_TRY(decoder_->run());
  ++steps_;
  Candidates candidates{decoder_->read_all<std::int32_t>(words_),
                        decoder_->read_all<float>(log_probabilities_)};
  for (const std::int32_t word : candidates.words) {
    if (word < 0 || word >= model_->vocab_size) {
      return make_error(ErrorCode::kNonFinite,
                        "token {}: the model's logits are not numbers; its weights may be damaged",
                        position + 1);
    }
  }
  return candidates;
}

Result<std::vector<Generated>> Generator::generate(
    std::span<const std::vector<std::int32_t>> sources, const Choice& choice, double length_penalty,
    std::int64_t first_row) {
  QT_TRY(read_sources(sources));
  const auto count = static_cast<std::int64_t>(sources.size());
  return options_.shape.beams > 1 ? with_beams(count, length_penalty)
                                  : one_by_one(count, choice, first_row);
}

Result<std::vector<Generated>> Generator::one_by_one(std::int64_t count, const Choice& choice,
                                                     std::int64_t first_row) {
  const GenerationShape& shape = options_.shape;
  std::vector<Generated> results(index(count));
  std::vector<bool> ended(index(count), false);
  std::vector<std::int32_t> words(index(shape.rows()),
                                  static_cast<std::int32_t>(model_->decoder_start_id));
  for (std::int64_t position = 0; position < shape.tokens; ++position) {
    QT_ASSIGN(const Candidates next, advance(words, position));
    for (std::int64_t row = 0; row < count; ++row) {
      if (ended[index(row)]) continue;
      const std::size_t first = index(row * shape.candidates);
      const std::int32_t chosen =
          choose({next.log_probabilities.data() + first, index(shape.candidates)}, choice,
                 first_row + row, position);
      const std::int32_t word = words[index(row)] = next.words[first + index(chosen)];
      Generated& result = results[index(row)];
      result.log_probability += static_cast<double>(next.log_probabilities[first + index(chosen)]);
      ended[index(row)] = word == model_->eos_id;
      if (!ended[index(row)]) result.words.push_back(word);
    }
    if (std::find(ended.begin(), ended.end(), false) == ended.end()) break;
  }
  return results;
}

Result<std::vector<Generated>> Generator::with_beams(std::int64_t count, double length_penalty) {
  const GenerationShape& shape = options_.shape;
  BeamSearch search({shape.sequences, shape.beams, shape.tokens,
                     static_cast<std::int32_t>(model_->eos_id), length_penalty});
  std::vector<std::int32_t> words(index(shape.rows()),
                                  static_cast<std::int32_t>(model_->decoder_start_id));
  // Where each row finds its past, position by position.
  std::vector<std::int32_t> origin(index(shape.rows() * shape.tokens), 0);
  for (std::int64_t position = 0; position < shape.tokens && !search.done(); ++position) {
    const std::vector<std::int32_t> before = origin;
    for (std::int64_t row = 0; row < shape.rows(); ++row) {
      const std::int64_t parent = search.parents()[index(row)];
      std::copy_n(before.begin() + parent * shape.tokens, position,
                  origin.begin() + row * shape.tokens);
      origin[index(row * shape.tokens + position)] = static_cast<std::int32_t>(row);
    }
    decoder_->write_all<std::int32_t>(rows_, origin);
    QT_ASSIGN(const Candidates next, advance(words, position));
    search.advance(next.words, next.log_probabilities, shape.candidates);
    std::copy(search.words().begin(), search.words().end(), words.begin());
  }
  auto results = search.results();
  results.resize(index(count));
  return results;
}

}  // namespace quintet
