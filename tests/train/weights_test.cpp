// Weights that leave as a Hugging Face folder (`quintet export`) and come back (`model.weights`):
// to the bit, in every form such folders have; and the folders that are refused.
#include <cmath>
#include <fstream>

#include <gtest/gtest.h>

#include "base/fp16.h"
#include "base/json.h"
#include "base/safetensors.h"
#include "generate/generator.h"
#include "tests/support/command.h"
#include "tests/support/faulty_store.h"
#include "tests/support/folders.h"
#include "tests/support/temporary_folder.h"
#include "train/checkpoint.h"
#include "train/export.h"
#include "train/golden.h"
#include "train/trainer.h"

namespace quintet {
namespace {

using testing::contains;

using Values = std::map<std::string, std::vector<float>>;

Values values_of(const Path& folder) {
  auto files = TensorFiles::open(folder, "model");
  if (!files.ok()) throw std::runtime_error(files.error().message);
  Values values;
  for (const auto& [name, tensor] : files.value().tensors()) {
    std::int64_t elements = 1;
    for (const std::int64_t dim : tensor.shape) elements *= dim;
    values[name].resize(static_cast<std::size_t>(elements));
    EXPECT_TRUE(files.value().read(name, 0, values[name]).ok());
  }
  return values;
}

// Writes one file of float32 tensors, flat values by name with shapes from `like`.
void write_values(const Path& folder, const Values& values, const Path& like,
                  const std::map<std::string, std::vector<std::int64_t>>& shapes = {}) {
  const auto files = TensorFiles::open(like, "model");
  std::vector<SafetensorsItem> items;
  for (const auto& [name, numbers] : values) {
    const auto& known = files.value().tensors();
    items.push_back(
        {name, DType::kF32, shapes.contains(name) ? shapes.at(name) : known.at(name).shape});
  }
  std::filesystem::create_directories(folder);
  auto writer = SafetensorsWriter::create(folder / "model.safetensors", items, {}).value();
  for (const auto& [name, numbers] : values)
    ASSERT_TRUE(writer.append(std::as_bytes(std::span(numbers))).ok());
  ASSERT_TRUE(writer.commit().ok());
}

class Weights : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TemporaryFolder;
    RunConfig config = run("trained", "");
    config.schedule.peak = 0.01;
    config.train.steps = 3;
    const auto result = train(config, *make_single_world());
    if (!result.ok()) throw std::runtime_error(result.error().message);
  }
  static void TearDownTestSuite() { delete folder_; }

  static Path at(const std::string& name) { return folder_->path() / name; }
  static Path trained() { return checkpoint_at(at("trained"), 3).folder; }

  // One step that changes nothing: its loss is that of the weights it starts from, and its
  // checkpoint has them.
  static RunConfig run(const std::string& name, const Path& weights) {
    RunConfig config;
    config.batch.micro_batch = 4;
    config.batch.source = 24;
    config.data.synthetic.languages = 2;
    config.train.steps = 1;
    config.train.threads = 1;
    config.schedule.kind = "constant";
    config.schedule.warmup_steps = 0;
    config.schedule.peak = 0;
    config.output.folder = at(name).string();
    config.output.log_every = 1000;
    config.model.weights = weights.string();
    return config;
  }
  static Values start_from(const std::string& name, const Path& weights) {
    const auto result = train(run(name, weights), *make_single_world());
    EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.error().message);
    return values_of(checkpoint_at(at(name), 1).folder);
  }
  static double loss_of(const std::string& name) {
    std::ifstream file(at(name) / "metrics.jsonl");
    std::string line;
    std::getline(file, line);
    return number_in(parse_json(line, name).value(), "loss", NAN);
  }
  static void refused(const RunConfig& config, const std::string& says,
                      ErrorCode code = ErrorCode::kBadInput) {
    const auto result = train(config, *make_single_world());
    ASSERT_FALSE(result.ok()) << says;
    EXPECT_TRUE(contains(result.error().message, says)) << result.error().message;
    EXPECT_EQ(result.error().code, code);
  }
  static ExportReport exported(const std::string& name, const std::string& dtype,
                               std::int64_t shard_bytes = 5'000'000'000) {
    ExportOptions options{at("trained"), at(name), dtype, shard_bytes, {}};
    auto report = export_model(options);
    EXPECT_TRUE(report.ok()) << (report.ok() ? "" : report.error().message);
    return report.ok() ? std::move(report).value() : ExportReport{};
  }
  // An exported folder to spoil.
  static Path copy_of(const std::string& from, const std::string& name) {
    std::filesystem::copy(at(from), at(name), std::filesystem::copy_options::recursive);
    return at(name);
  }

  static inline TemporaryFolder* folder_ = nullptr;
};

TEST_F(Weights, ComeBackToTheBit) {
  const Values original = values_of(trained());
  const ExportReport report = exported("fp32", "fp32");
  EXPECT_EQ(report.step, 3);
  EXPECT_EQ(report.weight_files, std::vector<std::string>{"model.safetensors"});
  EXPECT_FALSE(std::filesystem::exists(at("fp32/model.safetensors.index.json")));
  EXPECT_FALSE(std::filesystem::exists(at("fp32.partial")));
  EXPECT_TRUE(contains(report.why_no_tokenizer, "synthetic"));
  EXPECT_EQ(start_from("again", at("fp32")), original);
  EXPECT_EQ(start_from("checkpoint", trained()), original);
  EXPECT_EQ(loss_of("again"), loss_of("checkpoint"));

  const ExportReport shards = exported("shards", "fp32", 60'000);
  EXPECT_GT(shards.weight_files.size(), 5U);
  for (const std::string& name : shards.weight_files) {
    // More than the limit only where one weight alone is larger.
    const auto file = Safetensors::open(at("shards") / name);
    if (file.value().entries().size() > 1) {
      EXPECT_LE(std::filesystem::file_size(at("shards") / name), 60'000U + 8192);
    }
  }
  const auto text = read_file(at("shards/model.safetensors.index.json")).value();
  const Json index = parse_json(text, "index").value();
  EXPECT_EQ(index["weight_map"].size(), original.size());
  std::int64_t bytes = 0;
  for (const auto& [name, numbers] : original)
    bytes += static_cast<std::int64_t>(numbers.size()) * 4;
  EXPECT_EQ(integer_in(index["metadata"], "total_size", 0), bytes);
  EXPECT_EQ(start_from("again-shards", at("shards")), original);

  const Json config = parse_json(read_file(at("fp32/config.json")).value(), "config").value();
  EXPECT_EQ(config["model_type"], "mt5");
  EXPECT_EQ(config["tie_word_embeddings"], false);
  EXPECT_EQ(config["feed_forward_proj"], "gated-gelu");
  const Json generation =
      parse_json(read_file(at("fp32/generation_config.json")).value(), "generation").value();
  EXPECT_EQ(generation["eos_token_id"], 1);
  EXPECT_EQ(generation["decoder_start_token_id"], 0);
}

TEST_F(Weights, HalfPrecisionRoundsOnce) {
  const Values original = values_of(trained());
  exported("bf16", "bf16", 60'000);
  exported("fp16", "fp16");
  Values bf16s = original, fp16s = original;
  for (auto& [name, numbers] : bf16s)
    for (float& v : numbers) v = bf16(v);
  for (auto& [name, numbers] : fp16s)
    for (float& v : numbers) v = fp16(v);
  EXPECT_NE(bf16s, original);
  EXPECT_EQ(start_from("again-bf16", at("bf16")), bf16s);
  EXPECT_EQ(start_from("again-fp16", at("fp16")), fp16s);
  start_from("again-fp32", trained());
  EXPECT_NEAR(loss_of("again-bf16"), loss_of("again-fp32"), 1e-2 * loss_of("again-fp32"));
  EXPECT_NEAR(loss_of("again-fp16"), loss_of("again-fp32"), 1e-3 * loss_of("again-fp32"));
  const Json config = parse_json(read_file(at("bf16/config.json")).value(), "config").value();
  EXPECT_EQ(config["torch_dtype"], "bfloat16");
}

TEST_F(Weights, AreTheSameUnderEveryLayout) {
  exported("for-layouts", "fp32", 60'000);
  const Values original = values_of(trained());
  const auto start = [&](const std::string& name, int ranks, const std::string& layout) {
    const auto outcome = testing::quintet(
        "launch -n " + std::to_string(ranks) + " --threads 1 -- train --source 24 " + layout +
        " --set train.steps=1 --set data.languages=2 --set schedule.kind=constant --set "
        "schedule.warmup_steps=0 --set schedule.peak=0 --set parallel.whole_below=0 --set "
        "batch.global=4 --micro-batch 1 --set model.weights=" +
        at("for-layouts").string() + " --set output.folder=" + at(name).string());
    EXPECT_EQ(outcome.exit_code, 0) << name << outcome.output;
    EXPECT_TRUE(outcome.says("starting from the weights in")) << outcome.output;
    EXPECT_EQ(values_of(checkpoint_at(at(name), 1).folder), original) << name;
    return loss_of(name);
  };
  const double alone = start("alone", 1, "");
  EXPECT_NEAR(start("tensor", 2, "--tp 2"), alone, 1e-6 * alone);
  EXPECT_NEAR(start("pipeline", 2, "--pp 2"), alone, 1e-6 * alone);
  EXPECT_NEAR(start("sharded", 2, "--zero 3"), alone, 1e-6 * alone);
  EXPECT_NEAR(start("all", 4, "--tp 2 --pp 2"), alone, 1e-6 * alone);
  // Rounded weights with the rest of each float32 beside them.
  EXPECT_NEAR(start("bf16", 2, "--precision bf16 --zero 1 --set optimizer.master=remainder"), alone,
              2e-2 * alone);
}

// Values that Hugging Face computed for weights that it wrote.
TEST_F(Weights, OfTheReferenceHaveItsLoss) {
  const Path golden = Path(QUINTET_SOURCE_DIR) / "tests/goldens/grid";
  RunConfig config = run("golden", golden);
  config.model.name = golden.string();
  const auto result = train(config, *make_single_world());
  ASSERT_TRUE(result.ok()) << result.error().message;
  std::filesystem::copy(golden, at("golden-again"));
  std::filesystem::copy(checkpoint_at(at("golden"), 1).folder / "model.safetensors",
                        at("golden-again/model.safetensors"),
                        std::filesystem::copy_options::overwrite_existing);
  const auto report = check_golden(at("golden-again"), {}, *make_single_world());
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_LE(report.value().loss.error, 1e-6);
  EXPECT_TRUE(report.value().passed());
}

TEST_F(Weights, TheEmbeddingIsKnownByAllItsNames) {
  const Values original = values_of(trained());
  exported("names", "fp32");
  const auto shape =
      TensorFiles::open(trained(), "model").value().tensors().at("shared.weight").shape;
  const std::map<std::string, std::vector<std::int64_t>> shapes = {
      {"encoder.embed_tokens.weight", shape},
      {"decoder.embed_tokens.weight", shape},
      {"decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight", {32, 4}}};
  const auto variant = [&](const char* name, const auto& change) {
    Values values = original;
    change(values);
    std::filesystem::create_directories(at(name));
    std::filesystem::copy(at("names/config.json"), at(name) / "config.json");
    write_values(at(name), values, trained(), shapes);
    return at(name);
  };
  EXPECT_EQ(start_from("renamed-run", variant("renamed",
                                              [](Values& v) {
                                                auto node = v.extract("shared.weight");
                                                node.key() = "encoder.embed_tokens.weight";
                                                v.insert(std::move(node));
                                              })),
            original);
  EXPECT_EQ(
      start_from(
          "copied-run",
          variant(
              "copied",
              [](Values& v) {
                v["encoder.embed_tokens.weight"] = v["decoder.embed_tokens.weight"] =
                    v["shared.weight"];
                v["decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"].resize(
                    128);
              })),
      original);
  const Path torn = variant("torn", [](Values& v) {
    v["decoder.embed_tokens.weight"] = v["shared.weight"];
    v["decoder.embed_tokens.weight"].back() += 1;
  });
  refused(run("torn-run", torn), "\"decoder.embed_tokens.weight\" and \"shared.weight\" differ");
}

// transformers 5 writes "tied" into the configuration of every model, whatever its weights are.
TEST_F(Weights, WhetherTheHeadIsTiedIsSeenInWhatTransformers5Writes) {
  const Values original = values_of(trained());
  exported("as-it-is", "fp32", 60'000);
  const auto said = [&](const char* name, const Json& more) {
    const Path folder = copy_of("as-it-is", name);
    Json config = parse_json(read_file(folder / "config.json").value(), "config").value();
    config["tie_word_embeddings"] = true;
    for (const auto& [key, value] : more.items()) config[key] = value;
    put_file(folder / "config.json", to_text(config));
    return folder;
  };
  EXPECT_EQ(start_from("mt5-run", said("mt5", {{"transformers_version", "5.17.0"}})), original);
  EXPECT_EQ(start_from("t5-run", said("t5", {{"model_type", "t5"},
                                             {"scale_decoder_outputs", false},
                                             {"transformers_version", "5.17.0"}})),
            original);
  refused(run("version4-run", said("version4", {{"transformers_version", "4.57.1"}})),
          "tie_word_embeddings is true, not false");
  // Truly tied, and not scaled: no such model can be trained.
  const Path tied = said("tied5", {{"transformers_version", "5.17.0"}});
  for (const auto& entry : std::filesystem::directory_iterator(tied))
    if (entry.path().filename() != "config.json") std::filesystem::remove(entry.path());
  Values values = original;
  values.erase("lm_head.weight");
  write_values(tied, values, trained());
  refused(run("tied5-run", tied), "tied to the embedding without scaling");
}

TEST_F(Weights, ThatDoNotFitAreNamed) {
  const Values original = values_of(trained());
  exported("fitting", "fp32");
  const auto spoiled = [&](const char* name, const auto& change,
                           const std::map<std::string, std::vector<std::int64_t>>& shapes = {}) {
    Values values = original;
    change(values);
    std::filesystem::create_directories(at(name));
    std::filesystem::copy(at("fitting/config.json"), at(name) / "config.json");
    write_values(at(name), values, trained(), shapes);
    return run(std::string(name) + "-run", at(name));
  };
  refused(spoiled("missing", [](Values& v) { v.erase("lm_head.weight"); }),
          "missing: tensor \"lm_head.weight\"");
  refused(
      spoiled("extra", [](Values& v) { v["pooler.weight"].resize(4); }, {{"pooler.weight", {4}}}),
      "not part of this model: tensor \"pooler.weight\"");
  refused(spoiled("misshapen", [](Values&) {}, {{"encoder.final_layer_norm.weight", {2, 32}}}),
          "\"encoder.final_layer_norm.weight\" has shape [2, 32], the model needs [64]");
  // A number that is none is not a matter of form; the first step finds it.
  refused(spoiled("nan", [](Values& v) { v["lm_head.weight"][0] = NAN; }), "not finite",
          ErrorCode::kNonFinite);
}

TEST_F(Weights, FoldersOfOtherModelsAreRefused) {
  exported("model", "fp32", 60'000);
  const auto with_config = [&](const char* name, const char* key, const Json& value) {
    const Path folder = copy_of("model", name);
    Json config = parse_json(read_file(folder / "config.json").value(), "config").value();
    config[key] = value;
    put_file(folder / "config.json", to_text(config));
    return run(std::string(name) + "-run", folder);
  };
  refused(with_config("bert", "model_type", "bert"), "\"model_type\" is \"bert\"");
  refused(with_config("relu", "feed_forward_proj", "relu"),
          "feed_forward_proj is relu, not gated-gelu");
  refused(with_config("words", "vocab_size", 32128), "vocab_size is 32128, not 512");
  refused(with_config("tied", "tie_word_embeddings", true), "tie_word_embeddings is true");
  refused(run("nowhere-run", at("nowhere")), "nowhere: no such folder");

  const Path empty = at("empty");
  put_file(empty / "pytorch_model.bin", "pickle");
  refused(run("empty-run", empty), "pytorch_model.bin cannot be read");

  const Path cut = copy_of("model", "cut");
  std::vector<Path> shards;
  for (const auto& entry : std::filesystem::directory_iterator(cut))
    if (entry.path().extension() == ".safetensors") shards.push_back(entry.path());
  std::sort(shards.begin(), shards.end());
  std::filesystem::resize_file(shards.back(), std::filesystem::file_size(shards.back()) - 1);
  refused(run("cut-run", cut), "truncated");
  std::filesystem::resize_file(shards.back(), 5);
  refused(run("cut-run", cut), "truncated");
  std::filesystem::remove(shards.back());
  refused(run("cut-run", cut), "lists the file " + shards.back().filename().string());

  // Half precision that cannot hold a weight.
  Values large = values_of(trained());
  large["lm_head.weight"][7] = 70000;
  const Path run_folder = at("large"), step = checkpoint_at(run_folder, 3).folder;
  std::filesystem::create_directories(step);
  std::filesystem::copy(
      trained(), step,
      std::filesystem::copy_options::recursive | std::filesystem::copy_options::overwrite_existing);
  std::filesystem::remove(step / "manifest.json");
  put_file(step / "state.json", R"({"format": 1, "step": 3, "samples": 12})");
  write_values(step, large, trained());
  const auto halved = export_model({step, at("halved"), "fp16", 1 << 30, {}});
  ASSERT_FALSE(halved.ok());
  EXPECT_TRUE(contains(halved.error().message, "element 7 of \"lm_head.weight\" is 70000"))
      << halved.error().message;
  EXPECT_FALSE(std::filesystem::exists(at("halved")));
  EXPECT_FALSE(std::filesystem::exists(at("halved.partial")));
}

TEST_F(Weights, AResumedRunDoesNotLookAtThem) {
  const Values original = values_of(trained());
  exported("resumed", "fp32");
  RunConfig config = run("resuming", at("resumed"));
  ASSERT_TRUE(train(config, *make_single_world()).ok());
  std::filesystem::remove_all(at("resumed"));
  config.output.resume = true;
  config.train.steps = 2;
  const auto again = train(config, *make_single_world());
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(values_of(checkpoint_at(at("resuming"), 2).folder), original);
}

TEST_F(Weights, AnExportIsWholeOrNotThere) {
  FaultyStore counting(INT64_MAX);
  ExportOptions options{at("trained"), at("counted"), "bf16", 200'000, {}};
  ASSERT_TRUE(export_model(options, counting).ok());
  const auto whole = folder_contents(at("counted"));
  ASSERT_GT(counting.operations(), 10);
  // It is there already.
  const auto twice = export_model(options);
  ASSERT_FALSE(twice.ok());
  EXPECT_EQ(twice.error().code, ErrorCode::kUsage);
  EXPECT_TRUE(contains(twice.error().message, "exists"));
  options.output = at("faulty");
  for (std::int64_t failing = 0; failing + 1 < counting.operations(); ++failing) {
    FaultyStore store(failing);
    const auto failed = export_model(options, store);
    ASSERT_FALSE(failed.ok()) << failing;
    EXPECT_EQ(failed.error().code, ErrorCode::kIo);
    EXPECT_FALSE(std::filesystem::exists(at("faulty"))) << failing;
  }
  // What the failures left behind is no obstacle.
  ASSERT_TRUE(export_model(options).ok());
  EXPECT_EQ(folder_contents(at("faulty")), whole);
  EXPECT_FALSE(std::filesystem::exists(at("faulty.partial")));
}

TEST_F(Weights, OfADamagedCheckpointAreNotExported) {
  std::filesystem::copy(at("trained"), at("damaged"), std::filesystem::copy_options::recursive);
  std::filesystem::copy(checkpoint_at(at("damaged"), 3).folder,
                        checkpoint_at(at("damaged"), 4).folder);
  // The newest says that it is of step 3: an older one is taken.
  const auto older = export_model({at("damaged"), at("older"), "fp32", 1 << 30, {}});
  ASSERT_TRUE(older.ok()) << older.error().message;
  EXPECT_EQ(older.value().step, 3);
  // A value that was changed on the disk.
  const Path file = checkpoint_at(at("damaged"), 3).folder / "model.safetensors";
  {
    std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
    bytes.seekp(-5, std::ios::end);
    bytes.put('x');
  }
  const auto changed =
      export_model({checkpoint_at(at("damaged"), 3).folder, at("changed"), "fp32", 1 << 30, {}});
  ASSERT_FALSE(changed.ok());
  EXPECT_TRUE(contains(changed.error().message, "damaged")) << changed.error().message;
  EXPECT_FALSE(std::filesystem::exists(at("changed")));
  EXPECT_FALSE(export_model({at("nowhere"), at("x"), "fp32", 1, {}}).ok());
  EXPECT_TRUE(contains(export_model({at("older"), at("x"), "fp32", 1, {}}).error().message,
                       "neither a checkpoint nor a run"));
}

TEST_F(Weights, GeneratesFromWhatWasExported) {
  exported("to-generate", "fp16", 60'000);
  const std::vector<std::vector<std::int32_t>> sources = {{5, 9, 17, 1}};
  GenerateOptions options;
  options.shape.sequences = 1;
  options.shape.source = 8;
  options.shape.tokens = 6;
  options.target.threads = 1;
  auto from_export = Generator::open(at("to-generate"), options);
  ASSERT_TRUE(from_export.ok()) << from_export.error().message;
  auto from_checkpoint = Generator::open(trained(), options);
  const auto a = from_export.value().generate(sources, {}).value();
  const auto b = from_checkpoint.value().generate(sources, {}).value();
  EXPECT_NEAR(a[0].log_probability, b[0].log_probability, 1e-2 * std::abs(b[0].log_probability));
}

TEST(ExportSize, IsReadAsPeopleWriteIt) {
  EXPECT_EQ(parse_size("5GB").value(), 5'000'000'000);
  EXPECT_EQ(parse_size("500 MB").value(), 500'000'000);
  EXPECT_EQ(parse_size("1.5GiB").value(), 1'610'612'736);
  EXPECT_EQ(parse_size("123456").value(), 123456);
  for (const char* bad : {"", "GB", "-1GB", "0", "5 GX", "1e40", "nan", "5GB5"})
    EXPECT_FALSE(parse_size(bad).ok()) << bad;
}

TEST(ExportCli, TheFolderThatIsNamedAsAModelSaysHowToUseItsWeights) {
  const TemporaryFolder folder;
  const std::string golden = QUINTET_SOURCE_DIR "/tests/goldens/tiny";
  const auto outcome = testing::quintet("train --source 16 --micro-batch 1 --set train.steps=1 " +
                                        std::string("--model ") + golden);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_TRUE(outcome.says("model.weights=" + golden + " starts from them")) << outcome.output;
  EXPECT_EQ(testing::quintet("export " + golden + " " + (folder.path() / "x").string()).exit_code,
            3);
  EXPECT_EQ(testing::quintet("export a b --shard-size 5GX").exit_code, 2);
}

}  // namespace
}  // namespace quintet
