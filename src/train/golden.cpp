#include "train/golden.h"

#include <algorithm>
#include <cmath>

#include "base/json.h"
#include "base/safetensors.h"
#include "data/batch.h"
#include "train/feed.h"
#include "train/model_state.h"
#include "train/step_program.h"

namespace quintet {
namespace {

double relative(double actual, double expected) {
  const double error = std::abs(actual - expected) / std::max(std::abs(expected), 1e-30);
  return std::isfinite(error) ? error : std::numeric_limits<double>::infinity();
}

Result<Json> read_json(const Path& path) {
  QT_ASSIGN(const std::string text, read_file(path));
  return parse_json(text, path.string());
}

// A rectangle of integers, row-major.
struct Matrix {
  std::int64_t rows = 0, cols = 0;
  std::vector<std::int32_t> values;
};

Result<Matrix> read_matrix(const Json& batch, const char* key, const std::string& origin) {
  const auto fail = [&] {
    return bad_input("{}: \"{}\" is not a rectangle of integers", origin, key);
  };
  if (!batch.is_object() || !batch.contains(key)) {
    return bad_input("{}: \"{}\" is missing", origin, key);
  }
  const Json& rows = batch[key];
  if (!rows.is_array() || rows.empty()) return fail();
  Matrix matrix;
  matrix.rows = static_cast<std::int64_t>(rows.size());
  for (const Json& row : rows) {
    if (!row.is_array() || row.empty()) return fail();
    if (matrix.cols == 0) matrix.cols = static_cast<std::int64_t>(row.size());
    if (static_cast<std::int64_t>(row.size()) != matrix.cols) return fail();
    for (const Json& value : row) {
      if (!value.is_number_integer()) return fail();
      const auto number = value.get<std::int64_t>();
      if (number < INT32_MIN || number > INT32_MAX) return fail();
      matrix.values.push_back(static_cast<std::int32_t>(number));
    }
  }
  return matrix;
}

Result<Batch> read_batch(const Json& json, const T5Config& config, const std::string& origin) {
  QT_ASSIGN(Matrix source, read_matrix(json, "input_ids", origin));
  QT_ASSIGN(Matrix mask, read_matrix(json, "attention_mask", origin));
  QT_ASSIGN(Matrix labels, read_matrix(json, "labels", origin));
  if (mask.rows != source.rows || mask.cols != source.cols || labels.rows != source.rows) {
    return bad_input("{}: input_ids, attention_mask and labels do not fit together", origin);
  }
  Batch batch;
  batch.resize(source.rows, source.cols, labels.cols);
  batch.source = std::move(source.values);
  batch.labels = std::move(labels.values);
  for (std::int64_t r = 0; r < mask.rows; ++r) {
    const auto row = mask.values.begin() + r * mask.cols;
    const auto end = std::find(row, row + mask.cols, 0);
    if (std::any_of(end, row + mask.cols, [](std::int32_t m) { return m != 0; })) {
      return bad_input("{}: the attention_mask of sequence {} is not a run of ones and then zeros",
                       origin, r);
    }
    batch.lengths.push_back(static_cast<std::int32_t>(end - row));
  }
  shift_right(batch.labels, batch.target_length, static_cast<std::int32_t>(config.decoder_start_id),
              static_cast<std::int32_t>(config.pad_id), batch.target);
  QT_TRY(check_ids(batch, config.vocab_size));
  return batch;
}

// Rows [first, first + count) of a batch.
Batch slice(const Batch& batch, std::int64_t first, std::int64_t count) {
  Batch part;
  part.resize(count, batch.source_length, batch.target_length);
  const auto copy = [&](const std::vector<std::int32_t>& from, std::vector<std::int32_t>& to,
                        std::int64_t width) {
    to.assign(from.begin() + first * width, from.begin() + (first + count) * width);
  };
  copy(batch.source, part.source, batch.source_length);
  copy(batch.target, part.target, batch.target_length);
  copy(batch.labels, part.labels, batch.target_length);
  copy(batch.lengths, part.lengths, 1);
  return part;
}

Status number(const Json& object, const char* key, const std::string& origin, double& out) {
  if (!object.is_object() || !object.contains(key) || !object[key].is_number()) {
    return bad_input("{}: \"{}\" is missing or not a number", origin, key);
  }
  out = object[key].get<double>();
  return {};
}

class GoldenCheck {
 public:
  GoldenCheck(Path folder, const GoldenOptions& options, World& world)
      : folder_(std::move(folder)), options_(options), world_(world) {}

  Result<GoldenReport> run() {
    QT_TRY(read());
    report_.tolerances = GoldenTolerances::of(options_.dtype);
    QT_TRY(check_gradients());
    QT_TRY(check_trace("adamw", report_.adamw));
    QT_TRY(check_trace("adafactor", report_.adafactor));
    return std::move(report_);
  }

 private:
  Status read() {
    QT_ASSIGN(config_, load_model_config((folder_ / "config.json").string()));
    config_.dropout = 0;  // reference values are without
    QT_ASSIGN(expected_, read_json(folder_ / "expected.json"));
    const Path batches_path = folder_ / "batches.json";
    QT_ASSIGN(const Json batches, read_json(batches_path));
    if (!batches.is_array() || batches.empty()) {
      return bad_input("{}: expected a list of batches", batches_path.string());
    }
    for (const Json& json : batches) {
      QT_ASSIGN(Batch batch,
                read_batch(json, config_,
                           fmt::format("{}: batch {}", batches_path.string(), batches_.size())));
      if (!batches_.empty() && (batch.sequences != batches_[0].sequences ||
                                batch.source_length != batches_[0].source_length ||
                                batch.target_length != batches_[0].target_length)) {
        return bad_input("{}: batch {} has other sizes than batch 0", batches_path.string(),
                         batches_.size());
      }
      batches_.push_back(std::move(batch));
    }
    QT_ASSIGN(grid_, make_grid(world_.size(), options_.layout));
    for (Batch& batch : batches_) pad(batch);
    return validate(step_options());
  }

  // Adds sequences that do not count until every rank and micro-batch gets as many as the others.
  void pad(Batch& batch) const {
    const std::int64_t shares = std::int64_t{options_.accumulate} * grid_.dp;
    const auto splits = [&](std::int64_t sequences) {
      return sequences % shares == 0 && sequences / shares * batch.source_length % grid_.tp == 0 &&
             sequences / shares * batch.target_length % grid_.tp == 0;
    };
    while (!splits(batch.sequences)) ++batch.sequences;
    const auto rows = static_cast<std::size_t>(batch.sequences);
    batch.source.resize(rows * static_cast<std::size_t>(batch.source_length), 0);
    batch.target.resize(rows * static_cast<std::size_t>(batch.target_length), 0);
    batch.labels.resize(rows * static_cast<std::size_t>(batch.target_length), -1);
    batch.lengths.resize(rows, 1);
  }

  StepOptions step_options() const {
    StepOptions options;
    options.model = config_;
    options.batch = {batches_[0].sequences / options_.accumulate / grid_.dp,
                     batches_[0].source_length, batches_[0].target_length, true};
    options.accumulate = options_.accumulate;
    options.options.dtype = options.options.grad_dtype = options_.dtype;
    options.recompute = options_.recompute;
    options.layout = options_.layout;
    options.grid = grid_;
    options.target = options_.target;
    return options;
  }

  Status feed_batch(Executor& executor, const Batch& batch, const StepOptions& options) const {
    for (std::int32_t m = 0; m < options_.accumulate; ++m) {
      const std::int64_t first = options.batches().first_sample(0, m, executor.program().place.dp);
      QT_TRY(feed(executor, m, slice(batch, first, options.batch.micro_batch), options));
    }
    return {};
  }

  Status load_weights(Executor& executor) const {
    QT_ASSIGN(TensorFiles weights, TensorFiles::open(folder_, "model"));
    return ModelState(executor, world_, config_).load(weights);
  }

  Status check_gradients() {
    StepOptions options = step_options();
    options.update = false;
    const Program program = compile_step(options, world_.rank());
    QT_ASSIGN(const auto executor, make_executor(program, world_));
    QT_TRY(load_weights(*executor));
    QT_TRY(feed_batch(*executor, batches_[0], options));
    QT_ASSIGN(const StepResult result, run_step(*executor, 1, 0));
    const std::string origin = (folder_ / "expected.json").string();
    report_.loss = {"loss", 0, result.loss, 0};
    QT_TRY(number(expected_, "loss", origin, report_.loss.expected));
    report_.loss.error = relative(result.loss, report_.loss.expected);

    QT_ASSIGN(const Safetensors reference, Safetensors::open(folder_ / "grads.safetensors"));
    double total = 0;
    ModelState state(*executor, world_, config_);
    for (const Weight& weight : state.weights()) {
      std::vector<std::int64_t> dims;
      for (int i = 0; i < weight.shape.rank(); ++i) dims.push_back(weight.shape[i]);
      QT_ASSIGN(const std::vector<float> want, reference.read_float(weight.name, dims));
      const std::vector<float> got = state.gather_gradient(weight.name);
      double difference = 0, want_square = 0, got_square = 0;
      for (std::size_t i = 0; i < got.size(); ++i) {
        const double g = static_cast<double>(got[i]), w = static_cast<double>(want[i]);
        difference += (g - w) * (g - w);
        want_square += w * w;
        got_square += g * g;
      }
      total += got_square;
      GoldenValue value{weight.name, std::sqrt(want_square), std::sqrt(got_square), 0};
      value.error = std::sqrt(difference) / std::max(value.expected, 1e-30);
      if (!std::isfinite(value.error)) value.error = std::numeric_limits<double>::infinity();
      report_.gradients.push_back(std::move(value));
    }
    std::sort(report_.gradients.begin(), report_.gradients.end(),
              [](const GoldenValue& a, const GoldenValue& b) { return a.error > b.error; });
    report_.grad_norm = {"grad_norm", 0, std::sqrt(total), 0};
    QT_TRY(number(expected_, "grad_norm", origin, report_.grad_norm.expected));
    report_.grad_norm.error = relative(report_.grad_norm.actual, report_.grad_norm.expected);
    return {};
  }

  Status check_trace(const char* name, std::vector<GoldenValue>& trace) {
    const std::string origin = fmt::format("{}: {}", (folder_ / "expected.json").string(), name);
    if (!expected_.contains(name)) return bad_input("{} is missing", origin);
    const Json& settings = expected_[name];
    StepOptions options = step_options();
    OptimizerConfig& optimizer = options.optimizer;
    optimizer.name = name;
    double rate = 0;
    QT_TRY(number(settings, "lr", origin, rate));
    QT_TRY(number(settings, "clip_norm", origin, optimizer.clip_norm));
    QT_TRY(number(settings, "weight_decay", origin, optimizer.weight_decay));
    if (optimizer.name == "adamw") {
      QT_TRY(number(settings, "beta1", origin, optimizer.beta1));
      QT_TRY(number(settings, "beta2", origin, optimizer.beta2));
      QT_TRY(number(settings, "eps", origin, optimizer.epsilon));
    } else {
      QT_TRY(number(settings, "decay_rate", origin, optimizer.decay_rate));
      QT_TRY(number(settings, "clip_threshold", origin, optimizer.clip_threshold));
      const Json eps = settings.value("eps", Json::array());
      if (!eps.is_array() || eps.size() != 2 || !eps[0].is_number() || !eps[1].is_number()) {
        return bad_input("{}: \"eps\" is not a pair of numbers", origin);
      }
      optimizer.epsilon1 = eps[0].get<double>();
      optimizer.epsilon2 = eps[1].get<double>();
      const Json scale = settings.value("scale_parameter", Json(true));
      if (!scale.is_boolean())
        return bad_input("{}: \"scale_parameter\" is not true or false", origin);
      optimizer.scale_parameter = scale.get<bool>();
      if (settings.contains("beta1") && !settings["beta1"].is_null()) {
        return bad_input("{}: \"beta1\" is set; Adafactor with momentum is not there", origin);
      }
    }
    const Json losses = settings.value("losses", Json::array());
    if (!losses.is_array() || losses.size() > batches_.size()) {
      return bad_input("{}: \"losses\" is not a list of at most {} numbers", origin,
                       batches_.size());
    }
    const Program program = compile_step(options, world_.rank());
    QT_ASSIGN(const auto executor, make_executor(program, world_));
    QT_TRY(load_weights(*executor));
    for (std::size_t i = 0; i < losses.size(); ++i) {
      if (!losses[i].is_number()) return bad_input("{}: loss {} is not a number", origin, i);
      QT_TRY(feed_batch(*executor, batches_[i], options));
      QT_ASSIGN(const StepResult result,
                run_step(*executor, static_cast<std::int64_t>(i) + 1, rate));
      const double want = losses[i].get<double>();
      trace.push_back(
          {fmt::format("step {}", i + 1), want, result.loss, relative(result.loss, want)});
    }
    return {};
  }

  const Path folder_;
  const GoldenOptions& options_;
  World& world_;
  Grid grid_;
  T5Config config_;
  Json expected_;
  std::vector<Batch> batches_;
  GoldenReport report_;
};

bool all_within(const std::vector<GoldenValue>& values, double tolerance) {
  return std::all_of(values.begin(), values.end(),
                     [&](const GoldenValue& v) { return v.error <= tolerance; });
}

}  // namespace

bool GoldenReport::passed() const {
  return loss.error <= tolerances.loss && grad_norm.error <= tolerances.grad_norm &&
         all_within(gradients, tolerances.gradient) && all_within(adamw, tolerances.trace) &&
         all_within(adafactor, tolerances.trace);
}

Result<GoldenReport> check_golden(const Path& folder, const GoldenOptions& options, World& world) {
  return GoldenCheck(folder, options, world).run();
}

}  // namespace quintet
