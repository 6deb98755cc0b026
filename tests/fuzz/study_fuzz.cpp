// Study files, with the conditions in them.
#include "base/check.h"
#include "lab/design.h"
#include "tests/fuzz/fuzz.h"

using namespace quintet;  // NOLINT: a test of the whole surface

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  if (const auto study = StudyFile::parse(text, "fuzz"); study.ok()) {
    double cells = 1;
    for (const DesignFactor& factor : study.value().factors) {
      QT_CHECK(!factor.levels.empty(), "a factor without levels");
      cells *= static_cast<double>(factor.levels.size());
    }
    // Large designs are slow to make, not wrong.
    if (cells * static_cast<double>(study.value().design.repeats) < 1000) {
      if (const auto rows = rows_of(study.value()); rows.ok()) {
        QT_CHECK(!rows.value().empty(), "a study without rows");
        static_cast<void>(run_of(study.value(), rows.value()[0].levels).ok());
      }
    }
  }
  const Settings settings = {{"parallel.tp", std::int64_t{2}}, {"name", std::string("x")}};
  if (const auto condition = RowCondition::parse(text, settings, "fuzz"); condition.ok()) {
    QT_CHECK(condition.value().holds(settings).ok(), "a condition that holds no longer");
  }
  return 0;
}

std::vector<std::string> seeds() {
  const std::string head =
      "[study]\nquestion = \"q\"\nglobal_batch = 8\n[fixed]\nmodel.name = \"tiny\"\n";
  return {
      head +
          "[factors]\nparallel.zero = [0, 1]\nnodes = [1, 2]\n[design]\nrequire = [\"zero < 2\"]\n",
      head + "[factors]\nbandwidth = [\"1gbit\"]\n[place]\nkind = \"emulated\"\n",
      head + "[factors]\nbatch.micro_batch = [1, 2]\n[design]\nkind = \"fraction\"\ncells = 1\n",
      "tp * 2 == 4 and not (name == 'x' or 1 >= -2.5)", "(tp % 2) + 1 < 3"};
}
