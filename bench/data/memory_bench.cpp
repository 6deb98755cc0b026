// The peak memory of the commands that read text or corpora, on a corpus many times as large as the
// memory they may use. Generates the text (the same documents again and again, which compress as
// well as they are parsed as badly as any), runs the program, and prints what the system says it
// took: memory of its own, and with it the pages of mapped files that happened to be there, which
// the system takes back when somebody needs them.
//
//   memory_bench QUINTET FOLDER [GIGABYTES [THREADS]]
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
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

// In KiB: memory that is no file's, now; and all that was there at once so far, mapped files
// included.
struct ProcessMemory {
  std::int64_t own = 0, peak = 0;
};

// Nothing before the process has become the program it is to run, when it still has our memory, and
// when it is over.
ProcessMemory memory_of(pid_t process) {
  ProcessMemory memory;
  std::ifstream file(fmt::format("/proc/{}/status", process));
  std::string word, name;
  while (file >> word) {
    if (word == "Name:") file >> name;
    if (word == "RssAnon:") file >> memory.own;
    if (word == "VmHWM:") file >> memory.peak;
  }
  return name == "memory_bench" ? ProcessMemory{} : memory;
}

void run(const std::string& what, std::vector<std::string> arguments) {
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  const Stopwatch watch(Stopwatch::Of::kProcess);
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(::open("/dev/null", O_WRONLY), 1);
    ::dup2(1, 2);
    ::execv(pointers[0], pointers.data());
    ::_exit(127);
  }
  int status = 0;
  ProcessMemory most;
  pid_t ended = 0;
  while (child > 0 && (ended = ::waitpid(child, &status, WNOHANG)) == 0) {
    const ProcessMemory now = memory_of(child);
    most = {std::max(most.own, now.own), std::max(most.peak, now.peak)};
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  if (ended != child || status != 0) {
    fmt::print(stderr, "memory_bench: {} failed (status {})\n", what, status);
    std::exit(1);
  }
  fmt::print("{:<28} {:>6.0f} s   own {:>6} MiB   with mapped files {:>6} MiB\n", what,
             watch.elapsed().wall, most.own / 1024, most.peak / 1024);
  std::fflush(stdout);
}

int main(int argc, char** argv) {
  if (argc < 3) {
    fmt::print(stderr, "usage: memory_bench QUINTET FOLDER [GIGABYTES [THREADS]]\n");
    return 2;
  }
  const std::string quintet = argv[1];
  const Path folder = argv[2];
  const double gigabytes = argc > 3 ? std::atof(argv[3]) : 11;
  const std::string threads = argc > 4 ? argv[4] : "0";
  const Path text = folder / "text", corpus = folder / "corpus", model = folder / "bench.model";
  const std::uint64_t bytes = write_texts(text, gigabytes);
  const Result<std::string> pieces = counted_model(250000);
  check(pieces.ok() ? Status() : pieces.error());
  check(write_file(model, pieces.value()));
  fmt::print("{:.2f} GiB of text\n", static_cast<double>(bytes) * 0x1p-30);

  const std::vector<std::string> build = {
      quintet,         "data",      "build",      "--tokenizer", model,       "--out", corpus,
      "--language-by", "directory", "--held-out", "0.001",       "--threads", threads, text};
  const auto with = [](std::vector<std::string> arguments, const std::string& more) {
    arguments.push_back(more);
    return arguments;
  };
  run("build --deduplicate", with(build, "--deduplicate"));
  std::filesystem::remove_all(corpus);
  run("build", build);
  run("verify", {quintet, "data", "verify", corpus, "--threads", threads});
  run("inspect", {quintet, "data", "inspect", corpus, "--sample", "0", "1", "2"});
  run("inspect --set pack=true", {quintet, "data", "inspect", corpus, "--set", "pack=true"});
  run("train, two steps",
      {quintet, "train", "--model", "tiny", "--set", "data.kind=corpus", "--set",
       "data.folder=" + corpus.string(), "--set", "model.vocabulary=0", "--set", "train.steps=2"});
  run("export", {quintet, "data", "export", corpus, "--out", folder / "megatron"});
  std::filesystem::remove_all(corpus);
  run("import", {quintet, "data", "import", "--tokenizer", model, "--out", corpus,
                 "en=" + (folder / "megatron" / "en_train").string(),
                 "ru=" + (folder / "megatron" / "ru_train").string()});
  std::filesystem::remove_all(folder / "megatron");
  run("tokenize", {quintet, "tokenize", "--model", model, text / "en" / "part.jsonl.zst"});
  for (const std::string megabytes : {"256", "32"}) {
    run("tokenizer train, " + megabytes + " MB",
        {quintet, "tokenizer", "train", "--out", folder / "new.model", "--overwrite", "--megabytes",
         megabytes, "--threads", threads, text / "en", text / "ru"});
  }
  for (const char* left : {"corpus", "text", "bench.model", "new.model"})
    std::filesystem::remove_all(folder / left);
  return 0;
}

}  // namespace
}  // namespace quintet

int main(int argc, char** argv) {
  return quintet::main(argc, argv);
}
