// Where a search keeps what it decided and what came of it: FOLDER/search.sqlite (docs/search.md
// says what is in it). A decision is written before anything runs for it, a result in one
// transaction; whatever ends the program, the next one knows what was running and goes on with it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/files.h"
#include "lab/folder_database.h"
#include "lab/search/decide.h"

namespace quintet {

class SearchJournal {
 public:
  // One that holds a search, or is empty; nothing is written. Held by one process at a time.
  static Result<SearchJournal> open(const Path& folder, bool create);
  // Only to look at, whoever holds it.
  static Result<SearchJournal> view(const Path& folder);

  Result<bool> holds_search() const;
  // Puts a search into an empty one, at once or not at all.
  Status begin(const SearchFile& search, std::int64_t threads);
  Result<std::string> get(const std::string& key) const;  // "" if there is none
  // The search that is in it.
  Result<SearchFile> search() const;

  // All trials, by id, with all that is known of them.
  Result<std::vector<Trial>> trials() const;
  // Writes a decision to begin or to continue a trial, with the rung's steps and the command; in
  // `trials`, too.
  Status decided(const SearchDecision& decision, std::int64_t steps, const std::string& command,
                 std::vector<Trial>& trials);
  // Writes what came of a trial's last rung; in `trial`, too.
  Status finished(Trial& trial, const RungResult& result, std::optional<std::int64_t> exit);

 private:
  explicit SearchJournal(FolderDatabase database);
  FolderDatabase database_;
};

}  // namespace quintet
