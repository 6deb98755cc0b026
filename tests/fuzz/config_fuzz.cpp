// Run configurations (TOML and --set) and model configurations (JSON).
#include "base/check.h"
#include "tests/fuzz/fuzz.h"
#include "train/run_config.h"

using namespace quintet;  // NOLINT: a test of the whole surface

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  if (const auto values = parse_config(text, "fuzz"); values.ok()) {
    RunConfig config;
    if (apply_config(values.value(), config.fields()).ok()) {
      // What was accepted can be written and read again, to the same configuration.
      const std::string written = config_to_toml(config.fields(), true);
      const auto again = parse_config(written, "again");
      QT_CHECK(again.ok(), "{}", again.error().message);
      RunConfig copy;
      const Status applied = apply_config(again.value(), copy.fields());
      QT_CHECK(applied.ok(), "{}", applied.error().message);
      QT_CHECK(config_to_toml(copy.fields(), true) == written,
               "a round trip changed the configuration");
    }
  }
  ConfigValues values;
  if (parse_assignment(text, values).ok()) {
    RunConfig config;
    static_cast<void>(apply_config(values, config.fields()).ok());
  }
  if (const auto model = parse_hf_config(text, "fuzz"); model.ok()) {
    QT_CHECK(validate(model.value()).ok() && model.value().parameters() > 0,
             "an unsound model was accepted");
  }
  return 0;
}

std::vector<std::string> seeds() {
  RunConfig config;
  const std::string toml = config_to_toml(config.fields(), true);
  std::vector<std::string> all = {toml, "train.steps=100", "model.name=\"tiny\"",
                                  "optimizer.beta1=1e-3"};
  // Small pieces find more than one large text.
  for (std::size_t at = 0; at < toml.size(); at += 400) all.push_back(toml.substr(at, 400));
  for (const std::string& name : preset_names()) all.push_back(to_hf_config(preset(name).value()));
  return all;
}
