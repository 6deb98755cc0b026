// Search files: what is accepted can be sampled, and every trial's run is known beforehand.
#include "base/check.h"
#include "lab/search/decide.h"
#include "tests/fuzz/fuzz.h"

using namespace quintet;  // NOLINT: a test of the whole surface

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto search = SearchFile::parse(text, "fuzz");
  if (!search.ok()) return 0;
  QT_CHECK(search.value().space.size() > 0, "a search of nothing");
  const std::vector<Trial> none;
  const SearchDecision first = decide(search.value(), none, 1);
  if (first.kind != SearchDecision::Kind::kBegin) return 0;  // a budget below one trial's
  for (const SearchParameter& parameter : search.value().space.parameters()) {
    const auto value = first.settings.find(parameter.key);
    if (value == first.settings.end()) continue;
    const UnitCell cell = parameter.cell_of(value->second);
    QT_CHECK(cell.low >= 0 && cell.high <= 1, "{} is outside its range", parameter.key);
  }
  if (const auto plan = search.value().plan_of(first.settings, 0, 1); plan.ok())
    QT_CHECK(plan.value().rung_steps.front() >= 1, "a rung without steps");
  return 0;
}

std::vector<std::string> seeds() {
  const std::string head = "[search]\nquestion = \"q\"\ntrials = 4\n[budget]\nsteps = 9\n";
  return {head + "rungs = 2\n[space]\nschedule.peak = {log = [1e-4, 1e-1]}\n",
          head +
              "[space]\noptimizer.name = {choice = [\"adamw\", \"adafactor\"]}\n"
              "optimizer.beta2 = {linear = [0.9, 0.99], when = \"name == 'adamw'\"}\n",
          "[search]\nquestion = \"q\"\nsampler = \"random\"\n[budget]\ntokens = 9000\n[space]\n"
          "batch.micro_batch = {integer = [1, 16], log = true}\n[fixed]\nmodel.name = \"tiny\"\n"};
}
