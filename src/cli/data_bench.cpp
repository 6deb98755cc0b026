#include "data/bench/data_bench.h"

#include <thread>

#include <unistd.h>

#include "base/log.h"
#include "base/text.h"
#include "cli/commands.h"

namespace quintet {
namespace {

double mb_per_second(std::int64_t bytes, double seconds) {
  return static_cast<double>(bytes) * 1e-6 / seconds;
}

void print(const DataBenchOptions& options, const DataBench& bench) {
  fmt::print("{}, {} cores; {} pieces ({}); best of {} rounds, what is compared in turns\n",
             bench.processor, std::thread::hardware_concurrency(), with_commas(bench.vocabulary),
             bench.model, options.rounds);

  fmt::print("\n{:<28} {:>9} {:>15} {:>12} {:>9} {:>10} {:>11}\n", "tokenizer, one thread", "MB",
             "SentencePiece", "ours", "faster", "ids differ", "bytes/token");
  for (const TokenizerRates& text : bench.tokenizer) {
    fmt::print("{:<28} {:>9.1f} {:>10.2f} MB/s {:>7.2f} MB/s {:>8.2f}x {:>10} {:>11.2f}\n",
               text.name, static_cast<double>(text.bytes) * 1e-6,
               mb_per_second(text.bytes, text.library.best().cpu),
               mb_per_second(text.bytes, text.ours.best().cpu), text.speedup(), text.differing,
               static_cast<double>(text.bytes) / static_cast<double>(text.tokens));
  }

  const ThreadRates& scaling = bench.scaling;
  fmt::print(
      "\n{} threads, each encoder having read {:.0f} MB of other text before, as late in a long "
      "run:\n"
      "  {:.2f}x one by the clock ({:.1f} and {:.1f} MB/s), {:.2f}x by processor time (of the "
      "slowest thread)\n",
      scaling.threads, static_cast<double>(scaling.warm_bytes) * 1e-6,
      scaling.one.best().wall / scaling.all.best().wall,
      mb_per_second(scaling.bytes, scaling.all.best().wall),
      mb_per_second(scaling.bytes, scaling.one.best().wall),
      scaling.one.best().cpu / scaling.all.best().cpu);

  fmt::print("\n{:<28} {:>13} {:>18}\n", "stage, one thread", "clock", "processor time");
  for (const StageRate& stage : bench.stages) {
    fmt::print("{:<28} {:>8.1f} MB/s {:>13.1f} MB/s\n", stage.name,
               mb_per_second(stage.bytes, stage.rounds.best().wall),
               mb_per_second(stage.bytes, stage.rounds.best().cpu));
  }

  fmt::print(
      "\nA whole build, from opening a .jsonl.zst (zstd -3) to a corpus on the disk; beside it "
      "the\n"
      "tokenizer alone on the same documents, in memory already. Both begin with empty caches.\n");
  fmt::print("{:<28} {:>14} {:>16} {:>11} {:>16}\n", "jsonl.zst to shards", "tokenizer alone",
             "all, one thread", "slower by",
             fmt::format("{} thread{}", options.threads, options.threads == 1 ? "" : "s"));
  for (const EndToEnd& e : bench.end_to_end) {
    for (const bool wall : {true, false}) {
      const auto of = [&](const Rounds& rounds) {
        return wall ? rounds.best().wall : rounds.best().cpu;
      };
      fmt::print("{:<28} {:>10.1f} MB/s {:>11.1f} MB/s {:>9.1f} % {:>16}\n",
                 e.text + (wall ? ", clock" : ", processor"),
                 mb_per_second(e.bytes, of(e.tokenizer)), mb_per_second(e.bytes, of(e.one_thread)),
                 100 * (of(e.one_thread) / of(e.tokenizer) - 1),
                 wall ? fmt::format("{:.1f} MB/s", mb_per_second(e.bytes, of(e.all_threads)))
                      : std::string("-"));
    }
  }

  fmt::print(
      "\nThe same from a Parquet file (zstd, pages of 1 MiB, row groups of 8 MiB), by the clock\n");
  for (const EndToEnd& e : bench.end_to_end) {
    fmt::print(
        "{:<28} one thread {:.1f} MB/s ({:.2f}x of .zst), {} threads {:.1f} MB/s ({:.2f}x)\n",
        e.text, mb_per_second(e.bytes, e.parquet_one.best().wall),
        e.one_thread.best().wall / e.parquet_one.best().wall, options.threads,
        mb_per_second(e.bytes, e.parquet_all.best().wall),
        e.all_threads.best().wall / e.parquet_all.best().wall);
  }

  fmt::print("\nloader, {} + {} tokens a sample, page cache warm:\n", options.source,
             options.target);
  for (const LoaderRate& rate : bench.loader) {
    fmt::print("  {} thread{}{}: {:.0f} samples/s ({} tokens/s)\n", rate.threads,
               rate.threads == 1 ? "" : "s", rate.packed ? ", packed" : "",
               static_cast<double>(rate.samples) / rate.rounds.best().wall,
               human_count(static_cast<double>(rate.samples * (options.source + options.target)) /
                           rate.rounds.best().wall));
  }
  fmt::print("  a corpus of {} shards and {} tokens opens in {:.0f} ms\n",
             with_commas(bench.shards_opened),
             human_count(static_cast<double>(bench.tokens_opened)), bench.opening_seconds * 1e3);
}

Status run(DataBenchOptions options) {
  const Path parent =
      options.folder.empty() ? std::filesystem::temp_directory_path() : options.folder;
  options.folder = parent / fmt::format("quintet-bench-{}", ::getpid());
  QT_TRY(make_directories(options.folder));
  const auto result = bench_data(options, [](std::string_view what) { log_info("{}", what); });
  std::error_code ignored;
  std::filesystem::remove_all(options.folder, ignored);
  if (!result.ok()) return result.error();
  print(options, result.value());
  return {};
}

}  // namespace

void add_data_bench(CLI::App& data, Action& action) {
  CLI::App* command = data.add_subcommand(
      "bench", "measure tokenizer, pipeline and loader, against the SentencePiece library");
  auto options = std::make_shared<DataBenchOptions>();
  command
      ->add_option("--model", options->model,
                   "SentencePiece model (default: a vocabulary counted from generated text)")
      ->type_name("MODEL");
  command->add_option("--vocabulary", options->vocabulary, "pieces of that vocabulary")
      ->check(CLI::Range(1000, 1'000'000))
      ->capture_default_str();
  command->add_option("--megabytes", options->megabytes, "of each text; the library gets a quarter")
      ->check(CLI::Range(4, 1024))
      ->capture_default_str();
  command
      ->add_option("--text", options->texts,
                   "text of yours for the tokenizers, besides the generated ones")
      ->type_name("FILE...");
  command->add_option("--rounds", options->rounds, "repetitions; the best counts")
      ->check(CLI::Range(1, 100))
      ->capture_default_str();
  command->add_option("--threads", options->threads, "where several are used")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command->add_option("--source", options->source, "of the loader's samples")
      ->check(CLI::Range(3, 1 << 20))
      ->capture_default_str();
  command->add_option("--target", options->target, "of the loader's samples")
      ->check(CLI::Range(2, 1 << 20))
      ->capture_default_str();
  command->add_option("--folder", options->folder, "for temporary files (default: the system's)")
      ->type_name("DIR");
  command->footer(
      "Processor time is what counts on a machine that others use as well.\n\n"
      "Example: quintet data bench --model mt5.model --text wiki.txt --megabytes 4 --rounds 1");
  command->callback([options, &action] { action = [options] { return run(*options); }; });
}

}  // namespace quintet
