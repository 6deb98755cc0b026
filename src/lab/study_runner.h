// Runs what is left of a study: measured rows one after the other in their order, then simulated
// ones, several at a time. May be ended at any moment, by whatever; the next call goes on.
#pragma once

#include <atomic>

#include "lab/study_store.h"

namespace quintet {

struct StudyOptions {
  Path folder;
  bool unshaped = false;   // emulated nodes as plain ranks of this machine, links as they are
  bool keep_runs = false;  // the folders of rows that went well, too
  const std::atomic<bool>* interrupted = nullptr;
};

// kInterrupted after an interruption, with everything put away. Rows that failed are no error here.
Status run_study(const StudyFile& study, StudyStore& store, const StudyOptions& options);

}  // namespace quintet
