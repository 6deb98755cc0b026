#include "data/tokenizer/trie.h"

#include <algorithm>
#include <cmath>
#include <queue>

#include "base/check.h"

namespace quintet {
namespace {

// Where nodes can still go. The first free place from any place on is found through links that skip
// what is taken and shorten as they are followed (a disjoint-set forest).
class FreePlaces {
 public:
  bool is_free(std::size_t place) const { return place >= next_.size() || next_[place] == place; }
  std::size_t first_from(std::size_t place) {
    grow(place + 2);
    while (next_[place] != place) {
      next_[place] = next_[next_[place]];
      place = next_[place];
    }
    return place;
  }
  void take(std::size_t place) {
    grow(place + 2);  // there is always a free place at the end
    next_[place] = place + 1;
  }

 private:
  void grow(std::size_t size) {
    while (next_.size() < size) next_.push_back(next_.size());
  }
  std::vector<std::size_t> next_;  // a free place is its own
};

}  // namespace

Trie::Trie(std::vector<TrieKey> keys, std::uint32_t labels) {
  std::sort(keys.begin(), keys.end(),
            [](const TrieKey& a, const TrieKey& b) { return a.labels < b.labels; });
  // Sums of probabilities, so that the mass below a node is a difference.
  std::vector<double> mass(keys.size() + 1, 0);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const auto score = static_cast<double>(keys[i].score);
    mass[i + 1] = mass[i] + (score < 0 ? std::exp(score) : 1);
    if (std::isnan(score)) mass[i + 1] = mass[i];
  }

  // A node to be given children: the keys [first, last) share their first `depth` labels, which
  // lead to `node`.
  struct Job {
    double mass;
    std::size_t first, last, depth, node;
    bool operator<(const Job& other) const { return mass < other.mass; }
  };
  std::priority_queue<Job> jobs;
  FreePlaces places;
  std::vector<bool> base_used(1, true);
  // No place worth trying lies before these: for one child, and for several.
  std::size_t fronts[2] = {1, 1};
  std::vector<Node> nodes(1);
  values_.resize(1);

  const auto find_base = [&](const std::vector<std::uint32_t>& children) -> std::size_t {
    constexpr int kPatience = 100;
    std::size_t& front = fronts[children.size() > 1 ? 1 : 0];
    int tries = 0;
    for (std::size_t place = places.first_from(front);;
         place = places.first_from(place + 1), ++tries) {
      if (tries == kPatience) front = place;
      if (place <= children.front()) continue;
      const std::size_t base = place - children.front();
      if (base < base_used.size() && base_used[base]) continue;
      const bool fits = std::all_of(children.begin(), children.end(), [&](std::uint32_t label) {
        return places.is_free(base + label);
      });
      if (fits) return base;
    }
  };

  jobs.push({mass.back(), 0, keys.size(), 0, 0});
  std::vector<std::uint32_t> children;
  std::vector<Job> ranges;
  while (!jobs.empty()) {
    const Job job = jobs.top();
    jobs.pop();
    // 1. The children: runs of keys with the same next label.
    children.clear();
    ranges.clear();
    for (std::size_t i = job.first; i < job.last;) {
      if (keys[i].labels.size() == job.depth) {
        QT_CHECK(i == job.first && job.depth > 0, "a key that is empty or there twice");
        ++i;
        continue;
      }
      const std::uint32_t label = keys[i].labels[job.depth];
      QT_CHECK(label >= 1 && label <= labels, "label {} of {}", label, labels);
      std::size_t end = i + 1;
      while (end < job.last && keys[end].labels[job.depth] == label) ++end;
      children.push_back(label);
      ranges.push_back({mass[end] - mass[i], i, end, job.depth + 1, 0});
      i = end;
    }
    if (children.empty()) continue;
    // 2. A place for them; the root's children stand where their labels say.
    const std::size_t base = job.depth == 0 ? 0 : find_base(children);
    if (base >= base_used.size()) base_used.resize(base + 1, false);
    base_used[base] = true;
    nodes[job.node].base = static_cast<std::uint32_t>(base);
    for (std::size_t c = 0; c < children.size(); ++c) {
      const std::size_t place = base + children[c];
      places.take(place);
      nodes[job.node].children |= 1u << (children[c] % 32);
      if (place >= nodes.size()) {
        nodes.resize(place + 1);
        values_.resize(place + 1);
      }
      nodes[place].label = children[c];
      const TrieKey& key = keys[ranges[c].first];
      if (key.labels.size() == job.depth + 1) {
        nodes[place].score = key.score;
        values_[place] = key.value;
      }
      ranges[c].node = place;
      jobs.push(ranges[c]);
    }
  }
  // A node's label tells whose child it is only because no two nodes share a base. Padding keeps
  // every base + label in range.
  nodes.resize(nodes.size() + labels + 1);
  nodes_ = LargeArray<Node>(nodes.size());
  std::copy(nodes.begin(), nodes.end(), nodes_.data());
}

}  // namespace quintet
