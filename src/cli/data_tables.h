// What the subcommands of `data` print alike.
#pragma once

#include <cstdint>
#include <string>

#include "data/corpus/manifest.h"

namespace quintet {

// Documents, bytes, tokens and rates by language and split; and what was left out.
void print_corpus_table(const Manifest& manifest);

// "100 of them sentinels (1199 down to 1100)", whose first id is the highest.
std::string describe_sentinels(std::int64_t count, std::int64_t first);

}  // namespace quintet
