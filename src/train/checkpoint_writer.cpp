#include "train/checkpoint_writer.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <exception>

#include <sched.h>

#include "base/checksum.h"
#include "base/clock.h"
#include "base/index.h"
#include "base/log.h"
#include "base/text.h"
#include "train/shared_status.h"

namespace quintet {
namespace {

// Blocks at hand where they do not all fit: enough to keep threads and exchange busy.
constexpr std::int64_t kFewBlocks = 16;
// Blocks that are being sent or received at one time; fewer than kFewBlocks, so that some are
// always on their way to the disk.
constexpr std::size_t kExchanged = 8;
// Sends or receives of each of them, and a part that is read before it is sorted in.
constexpr std::int64_t kExchangeBytes = (static_cast<std::int64_t>(kExchanged) + 2) * kBlockBytes;
// Beside the tensors: headers, manifest, descriptions, the file system's own.
constexpr std::int64_t kSmallFiles = std::int64_t{16} << 20;
constexpr int kMostThreads = 8;
constexpr std::int32_t kGroupKey = 3000;

// Whether elements that follow each other in a part do so in the weight.
bool is_contiguous(const HeldPiece& piece, const Contribution& part) {
  return piece.cols == piece.width ||
         part.at / piece.cols == (part.at + part.count - 1) / piece.cols;
}

// Puts a part's values where they belong in a block that begins with element `first`.
void sort_in(const HeldPiece& piece, const Contribution& part, std::span<const float> values,
             std::int64_t first, std::span<float> block) {
  for (std::int64_t done = 0; done < part.count;) {
    const std::int64_t at = part.at + done;
    const std::int64_t count = std::min(piece.cols - at % piece.cols, part.count - done);
    std::memcpy(block.data() + (piece.element_at(at) - first), values.data() + done,
                index(count) * sizeof(float));
    done += count;
  }
}

std::string sums_to_text(const std::vector<std::pair<std::int64_t, std::uint64_t>>& sums) {
  static_assert(sizeof(sums[0]) == 16);
  return {reinterpret_cast<const char*>(sums.data()), sums.size() * sizeof(sums[0])};
}

CheckpointManifest::File described(std::string_view contents) {
  const auto size = static_cast<std::int64_t>(contents.size());
  return {size, size, checksum(contents)};
}

}  // namespace

std::int64_t saving_bytes(const CheckpointLayout& layout, std::int64_t ranks, bool background) {
  const std::int64_t share = share_limit(layout, ranks);
  return (background ? share : kFewBlocks * kBlockBytes) + (ranks > 1 ? kExchangeBytes : 0);
}

// ---- Setting up.

Result<std::unique_ptr<CheckpointWriter>> CheckpointWriter::create(
    const ModelState& state, Executor& executor, World& world, SaveOptions options,
    std::vector<TextFile> descriptions) {
  std::unique_ptr<CheckpointWriter> writer(
      new CheckpointWriter(state, executor, world, std::move(options), std::move(descriptions)));
  Status status;
  if (writer->memory_ == nullptr) {
    status = make_error(
        ErrorCode::kOutOfMemory,
        "the system refused {} of host memory for saving checkpoints; output.background=false "
        "needs less",
        human_bytes(static_cast<double>(writer->bytes_)));
  } else if (world.rank() == 0) {
    status = remove_leftovers(writer->options_.run_folder, *writer->options_.files);
  }
  QT_TRY(agree(world, status));
  return writer;
}

CheckpointWriter::CheckpointWriter(const ModelState& state, Executor& executor, World& world,
                                   SaveOptions options, std::vector<TextFile> descriptions)
    : state_(state),
      world_(world),
      options_(std::move(options)),
      descriptions_(std::move(descriptions)),
      layout_(checkpoint_layout(state.weights(), state.values(), options_.file_bytes)) {
  // 1. What all ranks have.
  std::string text;
  for (const std::string& pieces : world.gather(pieces_to_text(state.pieces()))) {
    const std::uint64_t size = pieces.size();
    text.append(reinterpret_cast<const char*>(&size), sizeof size);
    text += pieces;
  }
  text = world.broadcast(text);
  std::vector<std::vector<HeldPiece>> pieces;
  for (std::size_t at = 0; at < text.size();) {
    std::uint64_t size = 0;
    std::memcpy(&size, text.data() + at, sizeof size);
    pieces.push_back(pieces_from_text(text.substr(at + sizeof size, size)));
    at += sizeof size + size;
  }
  // 2. What this rank does. It must know the pieces of those that send to it.
  shares_ = share_blocks(layout_, pieces, world.rank());
  others_.resize(pieces.size());
  for (const BlockShare& share : shares_) {
    if (share.writer != world.rank()) continue;
    bytes_ += share.count * 4;
    for (const Contribution& part : share.parts) {
      if (others_[index(part.rank)].empty()) others_[index(part.rank)] = pieces[index(part.rank)];
    }
  }
  others_[index(world.rank())] = state.pieces();
  // 3. What it needs for that.
  if (!options_.background) bytes_ = kFewBlocks * kBlockBytes;
  memory_ = executor.host_memory(bytes_);
  if (world.size() > 1) {
    std::vector<std::int32_t> all(index(world.size()));
    for (std::size_t r = 0; r < all.size(); ++r) all[r] = static_cast<std::int32_t>(r);
    everyone_ = world.group(all, kGroupKey);
  }
}

CheckpointWriter::~CheckpointWriter() {
  if (committer_.joinable()) committer_.join();
}

// ---- Saving.

Status CheckpointWriter::save(const RunPosition& position) {
  const double began = now();
  const Status before = finish();
  if (const double waited = now() - began; waited > 1 && world_.rank() == 0) {
    log_warning(
        "training waited {:.1f} s until the checkpoint of step {} was written; output.save_every "
        "may be too small for this disk",
        waited, position_.step);
  }
  position_ = position;
  partial_ = set_aside_path(options_.run_folder, "partial", position.step);
  if (const Status ready = agree(world_, world_.rank() == 0 ? prepare() : Status()); !ready.ok())
    return give_up(ready);
  const auto elements = index(bytes_) / sizeof(float);
  const int threads =
      options_.threads > 0 ? options_.threads : std::clamp(share_of_cores(), 1, kMostThreads);
  writers_ = std::make_unique<BlockWriters>(
      *options_.files, layout_, partial_,
      std::span(reinterpret_cast<float*>(memory_.get()), elements), options_.background, threads);
  if (world_.rank() == 0) {
    for (std::size_t f = 0; f < layout_.files.size(); ++f)
      writers_->put_header(static_cast<std::int32_t>(f));
  }
  snapshot();
  writers_->close();
  phase_ = Phase::kWriting;
  const Status done = options_.background ? Status() : finish();
  still_seconds_ = now() - began;
  return before.ok() ? done : before;
}

Status CheckpointWriter::prepare() {
  FileStore& files = *options_.files;
  const Path folder = checkpoints_folder(options_.run_folder);
  QT_TRY(files.remove_folder(partial_));
  QT_TRY(files.make_folder(partial_));
  const std::int64_t needed = layout_.bytes() + kSmallFiles;
  QT_ASSIGN(const std::int64_t free, files.free_bytes(folder));
  if (free < needed) {
    return io_error(
        "{}: a checkpoint needs {} and the disk has {} free. Older ones are removed only once a "
        "new one is complete: there must be room for one more than output.keep",
        folder.string(), human_bytes(static_cast<double>(needed)),
        human_bytes(static_cast<double>(free)));
  }
  for (const CheckpointLayout::File& file : layout_.files) {
    QT_TRY(files.create(partial_ / file.name, file.bytes));
  }
  return {};
}

void CheckpointWriter::copy_own(const BlockShare& share, const Contribution& part,
                                std::span<float> block) const {
  const std::int32_t value = layout_.tensors[index(share.tensor)].value;
  const HeldPiece& piece = state_.pieces()[index(part.piece)];
  if (is_contiguous(piece, part)) {
    const std::int64_t to = piece.element_at(part.at) - share.first;
    state_.read(part.piece, value, part.at, block.subspan(index(to), index(part.count)));
  } else {
    sort_in(piece, part, part_values(share, part), share.first, block);
  }
}

std::vector<float> CheckpointWriter::part_values(const BlockShare& share,
                                                 const Contribution& part) const {
  std::vector<float> values(index(part.count));
  state_.read(part.piece, layout_.tensors[index(share.tensor)].value, part.at, values);
  return values;
}

// A block on its way from or to other ranks.
struct CheckpointWriter::Exchange {
  struct Message {
    const Contribution* part = nullptr;
    std::vector<float> values;  // sent, or received to be sorted in; empty: received in place
    std::unique_ptr<Transfer> transfer;
  };
  const BlockShare* share = nullptr;
  std::span<float> block;  // empty on the sender's side
  std::vector<Message> messages;
};

// Copies this rank's share into host memory. All ranks go through the blocks in the same order, and
// a rank waits only for the oldest of its blocks: whoever has the oldest of all can always go on.
void CheckpointWriter::snapshot() {
  std::deque<Exchange> under_way;
  const auto complete_oldest = [&] {
    Exchange& oldest = under_way.front();
    for (Exchange::Message& message : oldest.messages) {
      while (!message.transfer->test()) ::sched_yield();
      if (!oldest.block.empty() && !message.values.empty()) {
        const Contribution& part = *message.part;
        sort_in(others_[index(part.rank)][index(part.piece)], part, message.values,
                oldest.share->first, oldest.block);
      }
    }
    if (!oldest.block.empty()) writers_->put(*oldest.share, oldest.block);
    under_way.pop_front();
  };
  for (const BlockShare& share : shares_) {
    const bool writes = share.writer == world_.rank();
    Exchange exchange;
    exchange.share = &share;
    if (writes) exchange.block = writers_->acquire(share.count);
    for (const Contribution& part : share.parts) {
      if (writes && part.rank == world_.rank()) {
        copy_own(share, part, exchange.block);
        continue;
      }
      Exchange::Message message;
      message.part = &part;
      const std::int64_t bytes = part.count * 4;
      if (!writes) {
        message.values = part_values(share, part);
        message.transfer = everyone_->send(message.values.data(), bytes, share.writer, 0);
      } else if (const HeldPiece& piece = others_[index(part.rank)][index(part.piece)];
                 is_contiguous(piece, part)) {
        float* const to = exchange.block.data() + (piece.element_at(part.at) - share.first);
        message.transfer = everyone_->recv(to, bytes, part.rank, 0);
      } else {
        message.values.resize(index(part.count));
        message.transfer = everyone_->recv(message.values.data(), bytes, part.rank, 0);
      }
      message.transfer->start();
      exchange.messages.push_back(std::move(message));
    }
    if (exchange.messages.empty()) {
      writers_->put(share, exchange.block);
      continue;
    }
    under_way.push_back(std::move(exchange));
    if (under_way.size() == kExchanged) complete_oldest();
  }
  while (!under_way.empty()) complete_oldest();
}

// ---- Finishing.

Status CheckpointWriter::poll() {
  return busy() ? advance(false) : Status();
}

Status CheckpointWriter::finish() {
  while (busy()) QT_TRY(advance(true));
  return {};
}

Status CheckpointWriter::advance(bool wait) {
  if (phase_ == Phase::kWriting) {
    if (!wait && world_.minimum(writers_->done() ? 1 : 0) == 0) return {};
    if (const Status written = agree(world_, writers_->wait()); !written.ok())
      return give_up(written);
    return begin_commit();
  }
  const bool mine = world_.rank() != 0 || committed_;
  if (!wait && world_.minimum(mine ? 1 : 0) == 0) return {};
  if (committer_.joinable()) committer_.join();
  if (const Status committed = agree(world_, commit_status_); !committed.ok())
    return give_up(committed);
  phase_ = Phase::kIdle;
  return {};
}

Status CheckpointWriter::begin_commit() {
  const auto sums = world_.gather(sums_to_text(writers_->checksums()));
  writers_.reset();
  phase_ = Phase::kCommitting;
  commit_status_ = {};
  if (world_.rank() != 0) return {};
  committed_ = false;
  committer_ = std::thread([this, sums] {
    try {
      commit_status_ = commit(sums);
    } catch (const std::exception& error) {
      commit_status_ =
          make_error(ErrorCode::kInternal, "committing a checkpoint: {}", error.what());
    }
    committed_ = true;
  });
  return {};
}

Status CheckpointWriter::commit(const std::vector<std::string>& checksums) {
  // 1. The manifest.
  CheckpointManifest manifest;
  manifest.step = position_.step;
  manifest.ranks = world_.size();
  manifest.block_bytes = kBlockBytes;
  std::vector<std::uint64_t> sums(index(layout_.blocks), 0);
  std::int64_t known = 0;
  for (const std::string& text : checksums) {
    std::vector<std::pair<std::int64_t, std::uint64_t>> some(text.size() / 16);
    std::memcpy(static_cast<void*>(some.data()), text.data(), text.size());
    for (const auto& [block, sum] : some) sums[index(block)] = sum;
    known += static_cast<std::int64_t>(some.size());
  }
  QT_CHECK(known == layout_.blocks, "{} checksums of {} blocks", known, layout_.blocks);
  for (const CheckpointLayout::Tensor& tensor : layout_.tensors) {
    const auto first = sums.begin() + tensor.first_block;
    manifest.tensors[tensor.name].assign(first, first + tensor.blocks());
  }
  for (const CheckpointLayout::File& file : layout_.files) {
    manifest.files[file.name] = {file.bytes, static_cast<std::int64_t>(file.header.size()),
                                 checksum(file.header)};
  }
  // 2. The small files, and it.
  FileStore& files = *options_.files;
  std::vector<TextFile> texts = descriptions_;
  for (const auto& index : layout_.indices) texts.push_back({index.name, index.text});
  texts.push_back({"state.json", position_to_text(position_)});
  for (const TextFile& text : texts) {
    manifest.files[text.name] = described(text.contents);
    QT_TRY(files.replace(partial_ / text.name, text.contents));
  }
  QT_TRY(files.replace(partial_ / kCheckpointManifest, manifest.to_text()));
  QT_TRY(files.sync_folder(partial_));
  QT_TRY(files.sync_folder(options_.run_folder));  // in which `checkpoints` may be new
  // 3. Its name. One of the same step can only be of a run that went back to before it.
  const Path folder = checkpoints_folder(options_.run_folder);
  const Path final_folder = checkpoint_at(options_.run_folder, position_.step).folder;
  std::error_code failure;
  if (std::filesystem::exists(final_folder, failure)) {
    const Path removed = set_aside_path(options_.run_folder, "removed", position_.step);
    QT_TRY(files.remove_folder(removed));
    QT_TRY(files.rename(final_folder, removed));
  }
  QT_TRY(files.rename(partial_, final_folder));
  QT_TRY(files.sync_folder(folder));
  // 4. The checkpoint is there; that older ones could not be removed does not undo it.
  Status pruned = remove_superfluous(options_.run_folder, options_.retention, files);
  if (pruned.ok()) pruned = remove_leftovers(options_.run_folder, files);
  if (!pruned.ok()) log_warning("an old checkpoint was not removed: {}", pruned.error().message);
  return {};
}

Status CheckpointWriter::give_up(const Status& failure) {
  writers_.reset();
  phase_ = Phase::kIdle;
  if (world_.rank() == 0) {
    const Status removed = options_.files->remove_folder(partial_);
    if (!removed.ok()) log_warning("{}", removed.error().message);
  }
  return failure;
}

}  // namespace quintet
