// A search as one HTML page (lab/report/page.h).
#pragma once

#include <string>

#include "base/files.h"
#include "base/result.h"

namespace quintet {

// Reads FOLDER/search.sqlite and the trials' metrics, while the search runs or after; writes
// FOLDER/best.toml where there is a best.
Result<std::string> search_report(const Path& folder);

}  // namespace quintet
