#include "data/tokenizer/sentencepiece.h"

#include <unordered_map>

#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

namespace quintet {

static_assert(std::is_same_v<int, std::int32_t>);

Result<SentencePiece> SentencePiece::load(std::string_view bytes, const std::string& name) {
  auto processor = std::make_unique<sentencepiece::SentencePieceProcessor>();
  const auto status = processor->LoadFromSerializedProto(bytes);
  if (!status.ok()) {
    return bad_input("{}: SentencePiece cannot load it: {}", name, status.ToString());
  }
  return SentencePiece(std::move(processor));
}

SentencePiece::SentencePiece(std::unique_ptr<sentencepiece::SentencePieceProcessor> processor)
    : processor_(std::move(processor)) {}
SentencePiece::SentencePiece(SentencePiece&&) noexcept = default;
SentencePiece& SentencePiece::operator=(SentencePiece&&) noexcept = default;
SentencePiece::~SentencePiece() = default;

Status SentencePiece::encode(std::string_view text, std::vector<std::int32_t>& ids) const {
  const auto status = processor_->Encode(text, &ids);
  if (!status.ok()) return bad_input("SentencePiece cannot encode: {}", status.ToString());
  return {};
}

Result<std::string> SentencePiece::decode(const std::vector<std::int32_t>& ids) const {
  std::string text;
  const auto status = processor_->Decode(ids, &text);
  if (!status.ok()) return bad_input("SentencePiece cannot decode: {}", status.ToString());
  return text;
}

namespace {

class Sentences final : public sentencepiece::SentenceIterator {
 public:
  explicit Sentences(std::span<const std::string> sentences) : sentences_(sentences) {}
  bool done() const override { return next_ == sentences_.size(); }
  void Next() override { ++next_; }
  const std::string& value() const override { return sentences_[next_]; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  std::span<const std::string> sentences_;
  std::size_t next_ = 0;
};

}  // namespace

Result<std::string> train_sentencepiece(std::map<std::string, std::string> options,
                                        std::span<const std::string> sentences) {
  options.emplace("minloglevel", "2");
  const std::unordered_map<std::string, std::string> arguments(options.begin(), options.end());
  Sentences iterator(sentences);
  std::string model;
  const auto status = sentencepiece::SentencePieceTrainer::Train(
      arguments, options.contains("input") ? nullptr : &iterator, &model);
  if (!status.ok()) return bad_input("SentencePiece cannot train: {}", status.ToString());
  return model;
}

}  // namespace quintet
