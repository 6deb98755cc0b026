// `model.weights`: a run that starts from a trained model instead of random weights.
#pragma once

#include "base/result.h"
#include "parallel/communicator.h"
#include "train/model_state.h"
#include "train/run_config.h"

namespace quintet {

// Puts the weights of config.model.weights into a run's state; every rank reads what it has of
// them. Refused: a folder of another model, weights that are missing, misshapen or too much, files
// that are not whole, a tokenizer whose ids mean other things than those of the run's data. Called
// by all ranks together; all get the same.
Status load_starting_weights(const RunConfig& config, const T5Config& model, World& world,
                             ModelState& state);

// A word for people who name a folder as the model and perhaps mean its weights, too.
void say_if_weights_are_not_used(const RunConfig& config);

}  // namespace quintet
