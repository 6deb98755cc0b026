// T5 for generation, as two forward programs: one reads a batch of sources, once; the other adds
// one token to every row, again and again. They meet in the decoder's cross-attention: the first
// computes its keys and values, the second keeps them.
#pragma once

#include <cstdint>
#include <string>

#include "model/t5_config.h"
#include "program/program.h"

namespace quintet {

struct GenerationShape {
  std::int64_t sequences = 1;   // sources at one time
  std::int64_t beams = 1;       // rows for each of them
  std::int64_t source = 0;      // tokens, at most
  std::int64_t tokens = 0;      // generated for each, at most
  std::int32_t candidates = 1;  // best next words of each row

  std::int64_t rows() const { return sequences * beams; }
};

// The tensors through which the host drives it, by name: "position" (i32 [1]), "rows" (i32 [rows,
// tokens], with beams only), "words" and "log_probabilities" ([rows, candidates]); ids and lengths
// as in training.
inline constexpr const char* kPositionName = "position";
inline constexpr const char* kRowsName = "rows";
inline constexpr const char* kWordsName = "next.words";
inline constexpr const char* kLogProbabilitiesName = "next.log_probabilities";
// Keys and values of a decoder layer's cross-attention: a result of the first, [sequences, s, 2A],
// kept by the second, [rows, s, 2A].
std::string memory_name(std::int64_t layer);

Program emit_t5_encoder(const T5Config& config, const GenerationShape& shape, DType dtype);
Program emit_t5_decoder_step(const T5Config& config, const GenerationShape& shape, DType dtype);

}  // namespace quintet
