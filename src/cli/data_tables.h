// What the subcommands of `data` print alike.
#pragma once

#include "data/corpus/manifest.h"

namespace quintet {

// Documents, bytes, tokens and rates by language and split; and what was left out.
void print_corpus_table(const Manifest& manifest);

}  // namespace quintet
