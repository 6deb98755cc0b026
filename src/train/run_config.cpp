#include "train/run_config.h"

#include "base/files.h"
#include "data/corpus/manifest.h"
#include "data/tokenizer/model_tokenizer.h"
#include "optim/decay_table.h"
#include "parallel/communicator.h"
#include "train/batch_ramp.h"
#include "train/model_state.h"
#include "train/sample_order.h"

namespace quintet {

void ModelSection::list(FieldList& fields) {
  fields.add("name", name, "a preset, a Hugging Face config.json, or a folder with one");
  fields.add("weights", weights,
             "folder with trained weights to start from (Hugging Face's, `quintet export`'s, a "
             "checkpoint); model.name then defaults to it; empty: random weights");
  fields.add("vocabulary", vocabulary,
             "words of embedding and head, 2 or more; -1: what the model's configuration says, 0: "
             "as many as the corpus's tokenizer has, rounded up to a multiple of 128",
             between(-1, 1 << 24));
  fields.add("base_width", base_width,
             "d_model of the narrow model that learning rates and decay were chosen on: initial "
             "values and each weight's rate then follow the width so that they carry over "
             "(maximal update); 0: they are the same at every width",
             between(0, 1 << 17));
  fields.add("dropout", dropout,
             "dropout rate; -1: what the model's configuration says (presets: 0)",
             between(-1, 0.99));
  fields.add("z_loss", z_loss,
             "weight of the squared log-sum-exp of the logits; mT5 was trained with 1e-4",
             between(0, 1));
  fields.add("label_smoothing", label_smoothing,
             "share of each label's target that is spread evenly over all words; validation goes "
             "without it",
             between(0, 0.99));
  fields.add("loss_chunk", loss_chunk,
             "tokens whose logits exist at one time; 0: as many as fill about 64 MiB (cuda: 1 GiB)",
             at_least(0));
}

void BatchSection::list(FieldList& fields) {
  fields.add("micro_batch", micro_batch, "sequences computed at one time", between(1, 1 << 20));
  fields.add("accumulate", accumulate, "micro-batches whose gradients are added up for one step",
             between(1, 1 << 16));
  fields.add("global", global,
             "sequences of one step over all ranks, from which batch.accumulate then follows; 0: "
             "micro_batch x accumulate x data-parallel ranks",
             between(0, std::int64_t{1} << 40));
  fields.add(
      "ramp", ramp,
      "smaller batches at first: [\"1000=64\", \"2000=128\"] lets each step up to the 1000th "
      "have 64 sequences, then up to the 2000th 128, after that batch.global; the run goes "
      "through a checkpoint wherever the size changes");
  fields.add("source", source, "tokens of the encoder's input", between(3, 1 << 20));
  fields.add("target", target,
             "tokens of the decoder; 0: what the objective makes of the source, rounded up to a "
             "multiple of 8",
             between(0, 1 << 20));
}

void TrainSection::list(FieldList& fields) {
  fields.add("steps", steps, "optimizer steps of the whole run", at_least(1));
  fields.add("stop_after", stop_after,
             "this part of the run ends after so many steps, with a checkpoint, to be resumed; the "
             "schedule stays that of train.steps; 0: at the end",
             at_least(0));
  fields.add("seed", seed, "of initial weights, dropout, data, and how small moments are rounded",
             at_least(0));
  fields.add(
      "precision", precision,
      "of working weights and activations; bf16 keeps fp32 master weights; fp8 is bf16 whose "
      "layers multiply in eight bits",
      one_of({"fp32", "bf16", "fp8"}));
  fields.add("gradients", gradients, "precision in which gradients are accumulated",
             one_of({"same", "fp32", "bf16"}));
  fields.add("recompute", recompute,
             "what the backward computes again instead of keeping: nothing, the cheap (norms, "
             "activations), "
             "or whole layers",
             one_of({"none", "selective", "full"}));
  fields.add("device", device, "what computes", one_of({"cpu", "cuda"}));
  fields.add("graph", graph, "cuda: replay each step as one graph instead of launching op by op");
  fields.add("threads", threads,
             "of the CPU executor; 0: the cores of a machine, divided by its ranks",
             between(0, 1024));
  fields.add("max_hours", max_hours,
             "hours after which the run saves and stops (exit code 130), to be resumed; 0: none",
             at_least(0));
  fields.add("on_spike", on_spike,
             "what follows when the loss or the gradient norm of a step jumps: stop (exit code 5); "
             "skip: nothing is updated in that step; rewind: back to the newest checkpoint, and on "
             "with the batches after the spike. What is not finite counts as a spike; with none it "
             "stops the run and nothing else does",
             one_of({"none", "stop", "skip", "rewind"}));
  fields.add("spike_loss", spike_loss,
             "a loss this many times the median of the steps before is a spike; 0: not looked at",
             between(0, 1e6));
  fields.add("spike_norm", spike_norm, "the same for the gradient norm", between(0, 1e6));
  fields.add("spike_window", spike_window,
             "steps that the median is taken over; before there are as many nothing is a spike",
             between(1, 10000));
  fields.add("spike_limit", spike_limit,
             "spikes that a run skips or rewinds, after which it stops; 0: any number",
             at_least(0));
  fields.add("skip_batches", skip_batches,
             "batches that are not trained on, \"57\" or \"57, 60-64\": batch 1 holds the data's "
             "first batch.global sequences");
  fields.add("noise_scale", noise_scale,
             "measure the gradient noise scale, the batch in sequences whose gradient is as much "
             "noise as signal, from the norms of one micro-batch's gradient and the whole step's; "
             "reads the gradients once more each step");
}

void OutputSection::list(FieldList& fields) {
  fields.add("folder", folder, "where metrics and checkpoints go; empty: nowhere");
  fields.add("log_every", log_every, "steps between two lines of progress", at_least(1));
  fields.add("save_every", save_every, "steps between two checkpoints; 0: only at the end",
             at_least(0));
  fields.add("keep", keep, "checkpoints kept, the newest; 0: all", at_least(0));
  fields.add("keep_every", keep_every,
             "kept for good: checkpoints whose step is a multiple of this; 0: none", at_least(0));
  fields.add("keep_best", keep_best,
             "kept as well: this many checkpoints of lowest validation loss", at_least(0));
  fields.add(
      "background", background,
      "write checkpoints beside training, from a copy in host memory; false: training waits, "
      "and no copy is needed");
  fields.add("checkpoints", checkpoints,
             "write checkpoints; false: metrics and summary only, for runs that only measure");
  fields.add("summary_skip", summary_skip,
             "first steps that the summary's times leave out: they pay for pages and buffers",
             at_least(0));
  fields.add("tensorboard", tensorboard, "write event files for TensorBoard beside metrics.jsonl");
  fields.add("resume", resume, "continue from the newest checkpoint in the folder");
  fields.add(
      "resume_changed", resume_changed,
      "allow a resumed run other settings than it was saved with, as long as the saved weights and "
      "optimizer state are still its own: other data, rates or dropout, no other model or "
      "optimizer");
  fields.add("trace", trace,
             "file for a time line of some steps on all ranks, for chrome://tracing or Perfetto");
  fields.add("trace_first", trace_first, "the first step of the trace, counted from the start",
             at_least(1));
  fields.add("trace_steps", trace_steps, "how many steps the trace has", between(1, 1000));
}

void DataSection::list(FieldList& fields) {
  fields.add("kind", kind, "where examples come from", one_of({"synthetic", "corpus", "pairs"}));
  fields.add("prefetch", prefetch, "batches made ahead of their use", between(1, 1024));
  corpus.list(fields);
  pairs.list(fields);
  fields.add("languages", synthetic.languages, "synthetic: number of languages", between(1, 1000));
  fields.add("words", synthetic.words, "synthetic: words of each language", between(2, 100000));
  fields.add("branching", synthetic.branching, "synthetic: words that can follow a word",
             between(1, 100000));
  fields.add("skew", synthetic.skew,
             "synthetic: likelihood of each successor relative to the one before",
             between(0.01, 1));
}

void ValidateSection::list(FieldList& fields) {
  fields.add("every", every, "steps between two validations, and one at the end; 0: never",
             at_least(0));
  fields.add("batches", batches,
             "how much text: as many sequences as this many steps train on, always the same",
             between(1, std::int64_t{1} << 32));
  fields.add(
      "sequences", sequences,
      "how much text, whatever the batch: so that runs with other batches can be compared; 0: "
      "validate.batches says",
      between(0, std::int64_t{1} << 40));
  fields.add(
      "corpus", corpus,
      "folder of another corpus to validate on, with data.kind = \"pairs\" a file of other pairs; "
      "empty: the run's own corpus");
  fields.add("split", split, "which part of the corpus", one_of({"train", "held_out"}));
  fields.add("patience", patience,
             "training ends early after this many validations without a better loss; 0: never",
             at_least(0));
}

FieldList RunConfig::fields() {
  FieldList list;
  list.add_section("model", "What is trained.", model);
  list.add_section("batch",
                   "How much at a time. Global batch = micro_batch x accumulate x data-parallel "
                   "ranks, or as given.",
                   batch);
  list.add_section("train", "How long and in which precision.", train);
  list.add_section("optimizer", "How weights follow gradients.", optimizer);
  list.add_section("schedule", "The learning rate.", schedule);
  list.add_section("parallel", "How the work is spread over ranks. dp = ranks / (tp x pp).",
                   parallel);
  list.add_section("data", "What is learned from.", data);
  list.add_section("validate", "What tells how good it is: loss and bits per byte on other text.",
                   validate);
  list.add_section("output", "What is left behind.", output);
  return list;
}

Result<RunConfig> load_run_config(const std::string& file,
                                  const std::vector<std::string>& assignments) {
  ConfigValues values;
  if (!file.empty()) {
    QT_ASSIGN(const std::string text, read_file(file));
    QT_ASSIGN(values, parse_config(text, file));
  }
  for (const std::string& assignment : assignments) QT_TRY(parse_assignment(assignment, values));
  RunConfig config;
  QT_TRY(apply_config(values, config.fields()));
  if (!config.model.weights.empty() && !values.contains("model.name"))
    config.model.name = config.model.weights;
  return config;
}

Path tokenizer_place(const RunConfig& config) {
  if (config.data.kind == "corpus") {
    // What is wrong with a mixture is said where it is opened.
    const auto folders = config.data.corpus.folders();
    return folders.ok() ? Path(folders.value().front()) : Path();
  }
  return config.data.pairs.tokenizer.empty() ? config.model.weights : config.data.pairs.tokenizer;
}

Result<Path> trained_tokenizer(const Path& checkpoint) {
  QT_ASSIGN(const RunConfig config, load_run_config((checkpoint / "run.toml").string(), {}));
  if (config.data.kind == "synthetic") return bad_input("it was trained on synthetic data");
  const Path place = tokenizer_place(config);
  const auto found = tokenizer_at(place);
  std::error_code failure;
  if (found.ok() && std::filesystem::exists(found.value(), failure)) return found.value();
  return bad_input("{}, which it was trained with, is not there", place.string());
}

namespace {

// The model's vocabulary, where the run says something else than the model's configuration.
Status fit_vocabulary(const RunConfig& config, T5Config& model) {
  const std::int64_t asked = config.model.vocabulary;
  if (asked < 0) return {};
  if (asked > 0) {
    model.vocab_size = asked;
    const Status fits = validate(model);
    return fits.ok() ? fits : usage_error("model.vocabulary = {}: {}", asked, fits.error().message);
  }
  if (config.data.kind == "synthetic") {
    return usage_error(
        "model.vocabulary = 0 takes the vocabulary of a corpus or of pairs, and data.kind is "
        "\"{}\"; give a number instead",
        config.data.kind);
  }
  // Room to the next multiple makes products faster and lets tensor-parallel ranks split evenly.
  const auto with_room = [](std::int64_t words) { return (words + 127) / 128 * 128; };
  if (config.data.kind == "pairs") {
    QT_ASSIGN(const Path path, tokenizer_at(tokenizer_place(config)));
    QT_ASSIGN(const Tokenizer tokenizer, Tokenizer::open(path));
    model.vocab_size = with_room(tokenizer.vocabulary().size());
    return {};
  }
  QT_ASSIGN(const std::vector<std::string> folders, config.data.corpus.folders());
  QT_ASSIGN(const Manifest manifest, load_manifest(folders.front()));
  const std::int64_t more =
      std::max<std::int64_t>(0, config.data.corpus.sentinels - manifest.special.sentinels);
  model.vocab_size = with_room(manifest.layout.vocabulary + more);
  return {};
}

// Asks the data how long sequences get: whether the source is always full, and how long the target
// is where that is left open.
Status fit_lengths(const RunConfig& config, StepOptions& options) {
  std::int64_t target = config.batch.target;
  if (config.data.kind == "corpus") {
    QT_ASSIGN(const CorpusSource corpus,
              CorpusSource::open(config.data.corpus, config.batch.source, config.batch.target,
                                 options.model.vocab_size, 0));
    options.batch.packed = config.data.corpus.pack;
    options.batch.padded = !corpus.always_full() && !options.batch.packed;
    target = corpus.target_length();
  } else if (config.data.kind == "pairs") {
    options.batch.padded = true;
    if (target == 0) {
      return usage_error(
          "data.kind = \"pairs\" needs batch.target: tokens of the longest target, the end "
          "included");
    }
  } else if (target == 0) {
    QT_ASSIGN(const SpanCounts counts, fit_spans(config.batch.source, INT32_MAX, INT32_MAX,
                                                 config.data.corpus.objective.spans));
    options.batch.padded = counts.source_length() != config.batch.source;
    target = counts.target_length();
  }
  // Some tokens that do not count make the length one that tensor-parallel ranks can divide
  // evenly. The same under every layout: dropout is drawn by position.
  if (config.batch.target == 0) options.batch.target = (target + 7) / 8 * 8;
  return {};
}

// Micro-batches of a rank, where the global batch is given.
Result<std::int64_t> accumulation_of(const BatchSection& batch, const Grid& grid) {
  if (batch.global == 0) return batch.accumulate;
  const std::int64_t at_once = batch.micro_batch * grid.dp;
  if (batch.global % at_once != 0) {
    return usage_error(
        "batch.global = {} is not a multiple of {} sequences: batch.micro_batch = {} on {} "
        "data-parallel rank{}",
        batch.global, at_once, batch.micro_batch, grid.dp, grid.dp == 1 ? "" : "s");
  }
  const std::int64_t accumulate = batch.global / at_once;
  if (batch.accumulate != 1 && batch.accumulate != accumulate) {
    return usage_error(
        "batch.accumulate = {} with batch.global = {}: {} follows from the latter; leave the "
        "former "
        "out",
        batch.accumulate, batch.global, accumulate);
  }
  if (accumulate > 1 << 16)
    return usage_error("batch.global = {}: {} micro-batches on each rank", batch.global,
                       accumulate);
  return accumulate;
}

// Refuses keys of one kind of data where data.kind is another.
template <class Section>
Status check_unset(Section section, const std::string& kind, const char* of_kind) {
  Section unset;
  FieldList given, usual;
  given.add_section("data", "", section);
  usual.add_section("data", "", unset);
  const auto text_of = [](const Field& field) {
    return std::visit([](const auto* target) { return to_toml(TomlValue(*target)); }, field.target);
  };
  for (std::size_t i = 0; i < given.fields().size(); ++i) {
    if (text_of(given.fields()[i]) == text_of(usual.fields()[i])) continue;
    return usage_error(
        "{} has no effect with data.kind = \"{}\"; leave it out, or set data.kind = \"{}\"",
        given.fields()[i].key, kind, of_kind);
  }
  return {};
}

// Refuses keys that would have no effect, and models whose special ids the data does not use.
Status check_data_keys(const RunConfig& config, const T5Config& model) {
  if (model.pad_id != 0 || model.decoder_start_id != 0) {
    return usage_error(
        "{}: pad_token_id = {}, decoder_start_token_id = {}: data is padded, and decoders start, "
        "with id 0 here; models with other ids cannot be trained",
        model.name, model.pad_id, model.decoder_start_id);
  }
  const std::string& kind = config.data.kind;
  if (kind != "pairs") {
    QT_TRY(check_unset(config.data.pairs, kind, "pairs"));
  } else if (tokenizer_place(config).empty()) {
    return usage_error("data.kind = \"pairs\" needs data.tokenizer, or model.weights with one");
  }
  if (kind == "corpus") return {};
  CorpusConfig corpus = config.data.corpus;
  if (kind == "synthetic") corpus.objective.spans = {};  // it is cut into spans, too
  QT_TRY(check_unset(std::move(corpus), kind, "corpus"));
  if (kind == "pairs") return {};
  constexpr std::int64_t kLongestSynthetic = 8192;
  if (config.batch.source > kLongestSynthetic) {
    return usage_error("batch.source = {}: synthetic examples have at most {} tokens",
                       config.batch.source, kLongestSynthetic);
  }
  return {};
}

// Whether there is something to go back to, and to skip.
Status check_spike_keys(const RunConfig& config, const StepOptions& options) {
  if (!config.train.skip_batches.empty() && !config.batch.ramp.empty()) {
    return usage_error(
        "train.skip_batches counts batches of one size, and with batch.ramp they have several");
  }
  QT_TRY(parse_batches(config.train.skip_batches, options.global_batch()));
  if (config.train.on_spike != "rewind") return {};
  if (config.output.folder.empty() || !config.output.checkpoints || config.output.save_every == 0) {
    return usage_error(
        "train.on_spike = \"rewind\" goes back to checkpoints: set output.folder and "
        "output.save_every, or train.on_spike = \"skip\"");
  }
  return {};
}

// Whether every size of the ramp can be had, and handed over.
Status check_ramp(const RunConfig& config, const Grid& grid) {
  QT_ASSIGN(const std::vector<BatchPhase> phases, batch_phases(config));
  if (config.batch.ramp.empty()) return {};
  for (const BatchPhase& phase : phases) {
    BatchSection batch = config.batch;
    batch.global = phase.global;
    if (const auto accumulate = accumulation_of(batch, grid); !accumulate.ok())
      return usage_error("batch.ramp, from step {} on: {}", phase.first_step,
                         accumulate.error().message);
  }
  if (config.output.folder.empty() || !config.output.checkpoints) {
    return usage_error(
        "batch.ramp goes through a checkpoint wherever the size of batches changes: set "
        "output.folder, and output.checkpoints=true");
  }
  return {};
}

// A pattern that no weight matches is a mistake that a run would not show.
Status check_decay_table(const OptimizerConfig& optimizer, const T5Config& model) {
  QT_ASSIGN(const DecayTable table,
            DecayTable::create(optimizer.weight_decay, optimizer.decay_table));
  if (optimizer.decay_table.empty()) return {};
  std::vector<std::string> names;
  for (const Weight& weight : whole_weights(model)) names.push_back(weight.name);
  const std::string* unused = table.unused(names);
  if (unused == nullptr) return {};
  return usage_error(
      "optimizer.decay_table: no weight of {} is called \"{}\"; names are those of a checkpoint, "
      "like \"{}\", and * stands for any part",
      model.name, *unused, names.back());
}

Status check_validation(const RunConfig& config) {
  if (config.validate.every > 0) return {};
  if (config.validate.patience > 0) {
    return usage_error("validate.patience = {} needs validations: set validate.every",
                       config.validate.patience);
  }
  if (config.output.keep_best > 0) {
    return usage_error(
        "output.keep_best = {} keeps checkpoints of lowest validation loss: set validate.every",
        config.output.keep_best);
  }
  return {};
}

// What no index inside a step can count is refused before anything is compiled for it.
Status check_sizes(const StepOptions& options) {
  const std::int64_t tokens =
      options.batch.micro_batch * std::max(options.batch.source, options.batch.target);
  if (tokens > std::int64_t{1} << 28) {
    return usage_error(
        "batch.micro_batch = {} x {} tokens = {} in one micro-batch: at most 2^28; use a smaller "
        "batch.micro_batch and batch.accumulate",
        options.batch.micro_batch, std::max(options.batch.source, options.batch.target), tokens);
  }
  return {};
}

Result<StepOptions> make_step_options(const RunConfig& config, std::int64_t world) {
  StepOptions options;
  if (config.data.kind == "corpus" && config.data.corpus.folder.empty() &&
      config.data.corpus.mixture.empty()) {
    return usage_error(
        "data.folder is not set: data.kind = \"corpus\" needs a corpus made by `quintet data "
        "build`, or several in data.mixture");
  }
  QT_ASSIGN(options.model, load_model_config(config.model.name));
  QT_TRY(fit_vocabulary(config, options.model));
  if (config.model.dropout >= 0) options.model.dropout = config.model.dropout;
  options.model.base_width = config.model.base_width;

  options.batch = {config.batch.micro_batch, config.batch.source, config.batch.target, false,
                   false};
  QT_TRY(check_data_keys(config, options.model));
  QT_TRY(check_validation(config));
  QT_TRY(validate(config.schedule, config.train.steps));
  QT_TRY(check_decay_table(config.optimizer, options.model));
  QT_TRY(fit_lengths(config, options));
  QT_TRY(check_sizes(options));

  const auto dtype_named = [](const std::string& name) {
    return name == "fp32" ? DType::kF32 : DType::kBF16;
  };
  options.options.fp8 = config.train.precision == "fp8";
  options.options.dtype = dtype_named(config.train.precision);
  options.options.grad_dtype = config.train.gradients == "same"
                                   ? options.options.dtype
                                   : dtype_named(config.train.gradients);
  if (options.options.dtype == DType::kF32 && options.options.grad_dtype == DType::kBF16) {
    return usage_error(
        "train.gradients = \"bf16\" with train.precision = \"fp32\": gradients may be more "
        "precise than the weights, not less");
  }
  options.options.z_loss = config.model.z_loss;
  options.options.label_smoothing = config.model.label_smoothing;
  options.options.loss_chunk = config.model.loss_chunk;
  options.options.seed = static_cast<std::uint64_t>(config.train.seed);
  QT_ASSIGN(options.recompute, parse_recompute(config.train.recompute));
  options.optimizer = config.optimizer;
  options.layout = config.parallel;
  QT_ASSIGN(options.grid, make_grid(world, config.parallel));
  QT_ASSIGN(const std::int64_t accumulate, accumulation_of(config.batch, options.grid));
  options.accumulate = static_cast<std::int32_t>(accumulate);
  QT_TRY(check_ramp(config, options.grid));
  options.target.device = config.train.device == "cuda" ? Device::kCuda : Device::kCpu;
  options.target.graph = config.train.graph;
  if (options.target.device == Device::kCuda)
    options.options.logit_bytes = ModelOptions::kDeviceLogitBytes;
  options.target.threads =
      config.train.threads > 0 ? static_cast<int>(config.train.threads) : share_of_cores();
  options.noise = config.train.noise_scale;
  QT_TRY(validate(options));
  options.limited = config.train.on_spike == "skip";
  QT_TRY(check_spike_keys(config, options));
  return options;
}

}  // namespace

Result<StepOptions> step_options(const RunConfig& config, std::int64_t world) {
  return make_step_options(config, world);
}

}  // namespace quintet
