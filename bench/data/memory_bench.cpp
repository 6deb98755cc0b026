// The peak memory of `quintet data build` on a corpus many times as large as the memory it may use.
// Generates the text (the same documents again and again, which compress as well as they are
// parsed as badly as any), runs the program, and prints what the system says it took.
//
//   memory_bench QUINTET FOLDER [GIGABYTES [THREADS]]
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zstd.h>

#include "base/files.h"
#include "base/json.h"
#include "data/bench/data_bench.h"
#include "data/bench/stopwatch.h"
#include "data/sample_text.h"

namespace quintet {
namespace {

constexpr std::size_t kPartBytes = 32 << 20;  // of generated text, repeated in a file

void check(const Status& status) {
  if (status.ok()) return;
  fmt::print(stderr, "memory_bench: {}\n", status.error().message);
  std::exit(1);
}

std::string compress(const std::string& text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
  return out;
}

// JSON lines of one language, about kPartBytes of them.
std::string json_lines(std::string_view language) {
  const SampleText source(language);
  std::string lines, text;
  for (std::uint64_t i = 0; lines.size() < kPartBytes; ++i) {
    text.clear();
    source.append_document(7, i, 200 + i % 5 * 1000, text);
    lines += R"({"text": )" + to_text(text) + "}\n";
  }
  return lines;
}

// Lines as long as they are read at all, and one that is longer and must be passed over.
std::string long_lines() {
  const SampleText source("en");
  std::string lines;
  for (std::uint64_t i = 0; i < 24; ++i) {
    std::string text;
    source.append_document(8, i, 7 << 20, text);
    lines += R"({"text": )" + to_text(text) + "}\n";
  }
  return lines + R"({"text": ")" + std::string(200 << 20, 'x') + "\"}\n";
}

// Writes the corpus; returns the bytes of its text.
std::uint64_t write_texts(const Path& folder, double gigabytes) {
  const std::string_view languages[] = {"en", "de", "ru", "zh", "ar", "hi", "ja", "code"};
  const auto repeats =
      static_cast<std::size_t>(gigabytes * 0x1p30 / (kPartBytes * std::size(languages))) + 1;
  std::uint64_t bytes = 0;
  for (const std::string_view language : languages) {
    const std::string lines = json_lines(language), frame = compress(lines);
    std::string file;
    for (std::size_t i = 0; i < repeats; ++i) file += frame;
    bytes += lines.size() * repeats;
    check(make_directories(folder / language));
    check(write_file(folder / language / "part.jsonl.zst", file));
  }
  const std::string lines = long_lines();
  check(make_directories(folder / "long"));
  check(write_file(folder / "long" / "lines.jsonl.zst", compress(lines)));
  return bytes + lines.size();
}

void run(std::vector<std::string> arguments, const std::string& what, std::uint64_t bytes) {
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  const Stopwatch watch(Stopwatch::Of::kProcess);
  const pid_t child = ::fork();
  if (child == 0) {
    ::execv(pointers[0], pointers.data());
    ::_exit(127);
  }
  int status = 0;
  rusage usage{};
  if (child < 0 || ::wait4(child, &status, 0, &usage) != child || status != 0) {
    fmt::print(stderr, "memory_bench: {} failed (status {})\n", arguments[0], status);
    std::exit(1);
  }
  const double seconds = watch.elapsed().wall;
  fmt::print("{}: {:.2f} GiB of text in {:.0f} s ({:.0f} MB/s), peak memory {:.0f} MiB\n", what,
             static_cast<double>(bytes) * 0x1p-30, seconds,
             static_cast<double>(bytes) * 1e-6 / seconds,
             static_cast<double>(usage.ru_maxrss) / 1024);
  std::fflush(stdout);
}

int main(int argc, char** argv) {
  if (argc < 3) {
    fmt::print(stderr, "usage: memory_bench QUINTET FOLDER [GIGABYTES [THREADS]]\n");
    return 2;
  }
  const Path folder = argv[2];
  const double gigabytes = argc > 3 ? std::atof(argv[3]) : 11;
  const std::string threads = argc > 4 ? argv[4] : "0";
  const std::uint64_t bytes = write_texts(folder / "text", gigabytes);
  Result<std::string> model = counted_model(250000);
  check(model.ok() ? Status() : model.error());
  check(write_file(folder / "bench.model", model.value()));
  model = std::string();
  for (const bool deduplicate : {false, true}) {
    std::vector<std::string> arguments = {argv[1],
                                          "data",
                                          "build",
                                          "--tokenizer",
                                          folder / "bench.model",
                                          "--out",
                                          folder / "corpus",
                                          "--language-by",
                                          "directory",
                                          "--held-out",
                                          "0.001",
                                          "--threads",
                                          threads,
                                          folder / "text"};
    if (deduplicate) arguments.push_back("--deduplicate");
    run(arguments, deduplicate ? "with --deduplicate" : "plain", bytes);
    std::filesystem::remove_all(folder / "corpus");
  }
  std::filesystem::remove_all(folder / "text");
  std::filesystem::remove(folder / "bench.model");
  return 0;
}

}  // namespace
}  // namespace quintet

int main(int argc, char** argv) {
  return quintet::main(argc, argv);
}
