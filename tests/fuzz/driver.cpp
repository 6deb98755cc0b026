// Mutates a target's seeds for a fixed number of rounds. The same inputs every time: a failure is
// found again.
#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "base/philox.h"
#include "tests/fuzz/fuzz.h"

namespace {

using quintet::PhiloxSequence;

std::string mutate(std::string text, const std::vector<std::string>& pool, PhiloxSequence& random) {
  static const std::vector<std::string> kFragments = {"0",
                                                      "-1",
                                                      "18446744073709551615",
                                                      "9223372036854775807",
                                                      "1e400",
                                                      "nan",
                                                      "\"",
                                                      "\\",
                                                      "{",
                                                      "}",
                                                      "[",
                                                      "]",
                                                      ",",
                                                      ":",
                                                      "=",
                                                      ".",
                                                      "\n",
                                                      std::string(1, '\0'),
                                                      "\xff\xfe",
                                                      "\xed\xa0\x80",
                                                      "null",
                                                      "true",
                                                      "#"};
  const auto below = [&](std::size_t bound) {
    return static_cast<std::size_t>(
        random.below(static_cast<std::uint32_t>(std::max<std::size_t>(bound, 1))));
  };
  const std::size_t edits = 1 + below(4);
  for (std::size_t e = 0; e < edits; ++e) {
    const std::size_t at = below(text.size() + 1);
    switch (random.below(7)) {
      case 0:  // flip a bit
        if (!text.empty())
          text[at % text.size()] =
              static_cast<char>(text[at % text.size()] ^ (1 << random.below(8)));
        break;
      case 1:  // cut
        text.resize(at);
        break;
      case 2:  // remove a piece
        text.erase(at, below(16) + 1);
        break;
      case 3:  // insert something meaningful
        text.insert(at, kFragments[below(kFragments.size())]);
        break;
      case 4:  // repeat a piece
        text.insert(at, text.substr(below(text.size() + 1), below(32)));
        break;
      case 5: {  // continue with another seed
        const std::string& other = pool[below(pool.size())];
        text = text.substr(0, at) + other.substr(below(other.size() + 1));
        break;
      }
      default:  // overwrite bytes
        for (std::size_t i = at; i < std::min(text.size(), at + below(8)); ++i) {
          text[i] = static_cast<char>(random.next());
        }
    }
  }
  if (text.size() > (1u << 16)) text.resize(1u << 16);
  return text;
}

}  // namespace

int main(int argc, char** argv) {
  const long rounds = argc > 1 ? std::atol(argv[1]) : 20000;
  std::vector<std::string> pool = seeds();
  PhiloxSequence random(1, 2);
  for (long round = 0; round < rounds; ++round) {
    const std::string& from = pool[random.below(static_cast<std::uint32_t>(pool.size()))];
    std::string input = round < static_cast<long>(pool.size())
                            ? pool[static_cast<std::size_t>(round)]
                            : mutate(from, pool, random);
    LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(input.data()), input.size());
    // Some mutants live on, so that edits pile up.
    if (random.below(50) == 0 && pool.size() < 500) pool.push_back(std::move(input));
  }
  fmt::print("{} inputs, no crash\n", rounds);
  return 0;
}
