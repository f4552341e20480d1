// SPDX-License-Identifier: Apache-2.0
// Selection of key blocks: one thread block per (head, query block), no sort. A score becomes an
// unsigned number that compares as scores do; the border between kept and dropped is found bit by
// bit, each step one count (or one fp64 sum) over the row; ties at the border go by index. Rows of
// up to kThreads * kItems blocks stay in registers, longer ones are read again for each step.
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/select_launch.h"

namespace sparsed::kernels::cuda {
namespace {

constexpr uint32_t kNothing = 0;           // key of what takes no part; below every score's
constexpr uint32_t kBeyond = 0xffffffffu;  // above every score's key
constexpr int kItems = 16;

// NaN ranks as -inf, both zeros are one value.
__device__ uint32_t KeyOf(float score) {
  score = isnan(score) ? -INFINITY : score + 0.0f;
  const uint32_t bits = __float_as_uint(score);
  return (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
}

// What a block adds to a sum of mass.
__device__ double MassOf(float score) { return isnan(score) ? 0.0 : static_cast<double>(score); }

struct Item {
  uint32_t key;
  double mass;
};

// Keeps what is better than `key`, and of what equals it the blocks before `index`.
struct Border {
  uint32_t key;
  int index;

  __device__ bool Keeps(uint32_t other, int j) const {
    return other > key || (other == key && j < index);
  }
};
constexpr Border kKeepAll = {kNothing, 0};
constexpr Border kKeepNone = {kBeyond, 0};

// The items 0 .. n - 1 of a row, item j in thread j % kThreads; load(j) gives one.
template <int kThreads, bool kResident, class Load>
class Row {
 public:
  __device__ Row(int n, Load load) : n_(n), load_(load) {
    if constexpr (kResident) {
#pragma unroll
      for (int i = 0; i < kItems; ++i) {
        const int j = i * kThreads + static_cast<int>(threadIdx.x);
        items_[i] = j < n ? load(j) : Item{kNothing, 0.0};
      }
    }
  }

  // f(item, j) for the thread's items. Resident rows end in items without key or mass.
  template <class F>
  __device__ void ForEach(F f) const {
    if constexpr (kResident) {
#pragma unroll
      for (int i = 0; i < kItems; ++i) f(items_[i], i * kThreads + static_cast<int>(threadIdx.x));
    } else {
      for (int64_t j = threadIdx.x; j < n_; j += kThreads) {
        f(load_(static_cast<int>(j)), static_cast<int>(j));
      }
    }
  }

  __device__ int size() const { return n_; }

 private:
  int n_;
  Load load_;
  Item items_[kResident ? kItems : 1];
};

template <int kThreads, bool kResident>
class Selector {
 public:
  struct Storage {
    typename BlockFold<int, kThreads>::Storage counts;
    typename BlockFold<double, kThreads>::Storage sums;
  };

  __device__ Selector(const SelectParams& params, Storage* storage)
      : params_(params), count_(&storage->counts), sum_(&storage->sums) {}

  __device__ void Select(int64_t row) {
    const int n = params_.key_blocks;
    const int prompt = params_.first_generation;
    const float* scores = params_.scores + row * n;
    const float* generation = scores + prompt;
    Border first;   // of the prompt's blocks
    Border second;  // of the generation's, counted from its first one
    if (params_.rule == SelectionRule::kTopRatio) {
      first = BestOf(scores, prompt, params_.count);
      second = BestOf(generation, n - prompt, params_.generation_count);
    } else if (params_.rule == SelectionRule::kTopRatioCompat) {
      generation = params_.generation_scores + row * (n - prompt);
      first = BestOf(scores, n, params_.count);
      second = BestOf(generation, n - prompt, params_.generation_count);
    } else {
      first =
          params_.rule == SelectionRule::kMass ? ByMass(scores) : BestOf(scores, n, params_.count);
      second = {first.key, first.index - prompt};  // one border over all blocks
    }
    uint32_t* words = params_.words + row * ((int64_t{n} + 31) / 32);
    Write(words, [&](int j, uint32_t) {
      return j < prompt ? first.Keeps(KeyOf(scores[j]), j)
                        : second.Keeps(KeyOf(generation[j - prompt]), j - prompt);
    });
    if (params_.min_mass > 0) KeepMass(scores, words);
  }

 private:
  template <class Load>
  __device__ auto MakeRow(int n, Load load) {
    return Row<kThreads, kResident, Load>(n, load);
  }

  // Items with a key of at least `key`.
  template <class R>
  __device__ int CountFrom(const R& row, uint32_t key) {
    int count = 0;
    row.ForEach([&](const Item& item, int) { count += item.key >= key ? 1 : 0; });
    return count_.Sum(count);
  }

  template <class R, class Takes>
  __device__ double SumOf(const R& row, Takes takes) {
    double sum = 0;
    row.ForEach([&](const Item& item, int) { sum += takes(item.key) ? item.mass : 0.0; });
    return sum_.Sum(sum);
  }

  // The border that keeps, of the items with this key, the first `count`.
  template <class R>
  __device__ Border AmongTies(const R& row, uint32_t key, int count) {
    int low = 0;  // fewer than `count` of them lie before low, at least `count` before high
    int high = row.size();
    while (high - low > 1) {
      const int middle = low + (high - low) / 2;
      int before = 0;
      row.ForEach(
          [&](const Item& item, int j) { before += item.key == key && j < middle ? 1 : 0; });
      if (count_.Sum(before) >= count) {
        high = middle;
      } else {
        low = middle;
      }
    }
    return {key, high};
  }

  __device__ Border BestOf(const float* scores, int n, int count) {
    if (count <= 0) return kKeepNone;
    if (count >= n) return kKeepAll;
    const auto row = MakeRow(n, [scores](int j) { return Item{KeyOf(scores[j]), 0.0}; });
    uint32_t key = 0;  // at least `count` items have this key or a better one
    for (uint32_t bit = 0x80000000u; bit != 0; bit >>= 1) {
      const int from = CountFrom(row, key | bit);
      if (from == count) return {(key | bit) - 1, 0};
      if (from > count) key |= bit;
    }
    return AmongTies(row, key, count - CountFrom(row, key + 1));
  }

  // From the worst block up, drops until the next one would bring what is dropped to `droppable`.
  __device__ Border ByMass(const float* scores) {
    const int n = params_.key_blocks;
    const double droppable = params_.droppable;
    if (droppable <= 0) return kKeepAll;
    const auto row = MakeRow(n, [scores](int j) {
      return Item{KeyOf(scores[j]), MassOf(scores[j])};
    });
    uint32_t key = 0;  // everything below may go; written so that NaN does not stop it
    double below = 0;
    for (uint32_t bit = 0x80000000u; bit != 0; bit >>= 1) {
      const uint32_t next = key | bit;
      const double sum = SumOf(row, [next](uint32_t other) { return other < next; });
      if (!(sum >= droppable)) {
        key = next;
        below = sum;
      }
    }
    if (key == kBeyond) return BestOf(scores, n, 1);  // all of them together are too little
    const int ties = CountFrom(row, key) - CountFrom(row, key + 1);
    const int dropped = TiesBelow(below, ScoreOf(key), droppable, ties - 1);  // not all: see key
    return dropped == 0 ? Border{key - 1, 0} : AmongTies(row, key, ties - dropped);
  }

  // Adds the best dropped blocks until the kept ones sum to min_mass. Negative scores count as 0
  // here: they come after every block that can bring the sum closer.
  __device__ void KeepMass(const float* scores, uint32_t* words) {
    __syncthreads();  // the words are read back
    const int n = params_.key_blocks;
    const auto kept_at = [words](int j) { return ((words[j / 32] >> (j % 32)) & 1u) != 0; };
    const double kept = SumOf(MakeRow(n,
                                      [&](int j) {
                                        return Item{1, kept_at(j) ? MassOf(scores[j]) : 0.0};
                                      }),
                              [](uint32_t) { return true; });
    if (kept >= params_.min_mass) return;
    const auto dropped = MakeRow(n, [&](int j) {
      if (kept_at(j)) return Item{kNothing, 0.0};
      return Item{KeyOf(scores[j]), fmax(MassOf(scores[j]), 0.0)};
    });
    const Border border = UpToMass(dropped, kept);
    __syncthreads();  // rows that are not resident read words until here
    Write(words, [&](int j, uint32_t word) {
      return ((word >> (j % 32)) & 1u) != 0 || border.Keeps(KeyOf(scores[j]), j);
    });
  }

  template <class R>
  __device__ Border UpToMass(const R& dropped, double kept) {
    uint32_t key = 0;  // with everything from this key on, there is enough mass
    for (uint32_t bit = 0x80000000u; bit != 0; bit >>= 1) {
      const uint32_t next = key | bit;
      const double sum = SumOf(dropped, [next](uint32_t other) { return other >= next; });
      if (kept + sum >= params_.min_mass) key = next;
    }
    if (key == 0) return kKeepAll;
    const double better = kept + SumOf(dropped, [key](uint32_t other) { return other > key; });
    const int ties = CountFrom(dropped, key) - CountFrom(dropped, key + 1);
    const int short_of = TiesBelow(better, ScoreOf(key), params_.min_mass, ties - 1);
    return AmongTies(dropped, key, short_of + 1);
  }

  // The number that KeyOf made the key of.
  __device__ static double ScoreOf(uint32_t key) {
    const uint32_t bits = (key >> 31) != 0 ? key & 0x7fffffffu : ~key;
    return static_cast<double>(__uint_as_float(bits));
  }

  // How many equal masses, at most `ties`, go on top of `sum` and leave it below the limit.
  __device__ static int TiesBelow(double sum, double mass, double limit, int ties) {
    int low = 0;
    int high = ties + 1;  // low of them stay below, high do not (or are more than there are)
    while (high - low > 1) {
      const int middle = low + (high - low) / 2;
      if (sum + middle * mass >= limit) {
        high = middle;
      } else {
        low = middle;
      }
    }
    return low;
  }

  // words[j / 32] gets bit j % 32 = keeps(j, the word before); bits beyond the row are 0.
  template <class Keeps>
  __device__ void Write(uint32_t* words, Keeps keeps) {
    const int lane = static_cast<int>(threadIdx.x % 32);
    const int count = params_.key_blocks;
    for (int64_t base = threadIdx.x / 32 * 32; base < count; base += kThreads) {
      const int j = static_cast<int>(base) + lane;
      const uint32_t before = words[base / 32];
      const uint32_t word = __ballot_sync(kFullWarp, base + lane < count && keeps(j, before));
      if (lane == 0) words[base / 32] = word;
    }
  }

  const SelectParams& params_;
  BlockFold<int, kThreads> count_;
  BlockFold<double, kThreads> sum_;
};

template <int kThreads, bool kResident>
__global__ void __launch_bounds__(kThreads)
    SelectKernel(const __grid_constant__ SelectParams params) {
  __shared__ typename Selector<kThreads, kResident>::Storage storage;
  Selector<kThreads, kResident> selector(params, &storage);
  for (int64_t row = blockIdx.x; row < params.rows; row += gridDim.x) selector.Select(row);
}

}  // namespace

void LaunchSelectBlocks(const SelectParams& params, cudaStream_t stream) {
  constexpr int64_t kMaxGrid = INT32_MAX;
  const auto grid = static_cast<unsigned>(params.rows < kMaxGrid ? params.rows : kMaxGrid);
  if (params.key_blocks <= 32 * kItems) {
    SelectKernel<32, true><<<grid, 32, 0, stream>>>(params);
  } else if (params.key_blocks <= 256 * kItems) {
    SelectKernel<256, true><<<grid, 256, 0, stream>>>(params);
  } else {
    SelectKernel<512, false><<<grid, 512, 0, stream>>>(params);
  }
}

}  // namespace sparsed::kernels::cuda
