// SPDX-License-Identifier: Apache-2.0
// The kinds of metric that metrics.def may name. Each has at most one label, whose values are
// listed up front: all series exist from the first scrape on, and no caller can add one.
//   metrics.step_seconds.Observe(0.12, "build");
// All methods may be called from any thread, without locks of ours.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

namespace sparsed {

struct MetricLabel {
  std::string name;                 // empty: no label, one series
  std::vector<std::string> values;  // anything else is counted as "other"
};

struct MetricText {
  std::string name;
  std::string help;
};

// The series of one metric by label value.
template <class Series>
class SeriesByLabel {
 public:
  Series& at(std::string_view value) {
    const auto found = series_.find(value);
    return found != series_.end() ? *found->second : add_other_();
  }

 protected:
  template <class Family, class... Args>
  SeriesByLabel(Family& family, const MetricLabel& label, const Args&... args) {
    if (label.name.empty()) series_[""] = &family.Add({}, args...);
    for (const std::string& value : label.values) {
      series_[value] = &family.Add({{label.name, value}}, args...);
    }
    // Adding a series that exists returns it.
    add_other_ = [&family, name = label.name, args...]() -> Series& {
      return family.Add({{name, "other"}}, args...);
    };
  }

 private:
  std::map<std::string, Series*, std::less<>> series_;  // never changes after construction
  std::function<Series&()> add_other_;
};

class Counter : public SeriesByLabel<prometheus::Counter> {
 public:
  Counter(prometheus::Registry* registry, const MetricText& text, const MetricLabel& label);
  void Add(double amount, std::string_view label = {}) { at(label).Increment(amount); }
};

class Gauge : public SeriesByLabel<prometheus::Gauge> {
 public:
  Gauge(prometheus::Registry* registry, const MetricText& text, const MetricLabel& label);
  void Set(double value, std::string_view label = {}) { at(label).Set(value); }
};

class Histogram : public SeriesByLabel<prometheus::Histogram> {
 public:
  void Observe(double value, std::string_view label = {}) { at(label).Observe(value); }

 protected:
  Histogram(prometheus::Registry* registry, const MetricText& text, const MetricLabel& label,
            const std::vector<double>& buckets);
};

// Seconds, from 1 ms to 10 minutes.
class LatencyHistogram : public Histogram {
 public:
  LatencyHistogram(prometheus::Registry* registry, const MetricText& text,
                   const MetricLabel& label);
};

// Shares in [0, 1], in steps of 0.05.
class RatioHistogram : public Histogram {
 public:
  RatioHistogram(prometheus::Registry* registry, const MetricText& text, const MetricLabel& label);
};

// Whole numbers from 1 to 131072, in powers of two.
class SizeHistogram : public Histogram {
 public:
  SizeHistogram(prometheus::Registry* registry, const MetricText& text, const MetricLabel& label);
};

// A gauge that is always 1 and whose labels carry facts about the process, set once.
class Info {
 public:
  Info(prometheus::Registry* registry, const MetricText& text, const MetricLabel& label);
  void Set(const std::map<std::string, std::string>& facts) { family_.Add(facts).Set(1); }

 private:
  prometheus::Family<prometheus::Gauge>& family_;
};

}  // namespace sparsed
