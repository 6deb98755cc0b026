// The subcommands of `quintet`, one file each. A file adds its subcommand with its options and,
// when the user chose it, sets `action` to what it does.
#pragma once

#include <functional>

#include <CLI/CLI.hpp>

#include "base/result.h"

namespace quintet {

using Action = std::function<Status()>;

void add_train(CLI::App& app, Action& action);
void add_evaluate(CLI::App& app, Action& action);
void add_launch(CLI::App& app, Action& action);
void add_cluster(CLI::App& app, Action& action);
void add_study(CLI::App& app, Action& action);
void add_search(CLI::App& app, Action& action);
void add_sweep(CLI::App& app, Action& action);
void add_plan(CLI::App& app, Action& action);
void add_export(CLI::App& app, Action& action);
void add_generate(CLI::App& app, Action& action);
void add_report(CLI::App& app, Action& action);
void add_inspect(CLI::App& app, Action& action);
void add_verify(CLI::App& app, Action& action);
void add_bench(CLI::App& app, Action& action);
void add_bench_checkpoint(CLI::App& bench, Action& action);
void add_checkpoint(CLI::App& app, Action& action);
void add_bench_foresight(CLI::App& bench, Action& action);
void add_calibrate(CLI::App& app, Action& action);
void add_config(CLI::App& app, Action& action);
void add_tokenize(CLI::App& app, Action& action);
void add_tokenizer(CLI::App& app, Action& action);
void add_data(CLI::App& app, Action& action);

// The subcommands of `data`.
void add_data_build(CLI::App& data, Action& action);
void add_data_inspect(CLI::App& data, Action& action);
void add_data_verify(CLI::App& data, Action& action);
void add_data_import(CLI::App& data, Action& action);
void add_data_generate(CLI::App& data, Action& action);
void add_data_export(CLI::App& data, Action& action);
void add_data_bench(CLI::App& data, Action& action);

// The subcommands of `search`.
void add_search_run(CLI::App& search, Action& action);
void add_search_resume(CLI::App& search, Action& action);
void add_search_status(CLI::App& search, Action& action);
void add_search_report(CLI::App& search, Action& action);

// The subcommands of `study`.
void add_study_run(CLI::App& study, Action& action);
void add_study_resume(CLI::App& study, Action& action);
void add_study_status(CLI::App& study, Action& action);
void add_study_analyse(CLI::App& study, Action& action);
void add_study_report(CLI::App& study, Action& action);

}  // namespace quintet
