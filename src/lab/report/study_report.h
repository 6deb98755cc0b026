// A study told on one page: the question, the answer, pictures, tables, and the way back to every
// figure.
#pragma once

#include <string>

#include "base/files.h"
#include "base/result.h"

namespace quintet {

// The page of the study in this folder, as HTML.
Result<std::string> study_report(const Path& folder);

}  // namespace quintet
