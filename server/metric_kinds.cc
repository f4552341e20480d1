// SPDX-License-Identifier: Apache-2.0
#include "server/metric_kinds.h"

#include <utility>

namespace sparsed {
namespace {

using Buckets = std::vector<double>;

Buckets LatencyBuckets() {
  return {0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1,
          2,     5,     10,    20,   30,   60,   120, 300, 600};
}

Buckets RatioBuckets() {
  Buckets buckets;
  for (int twentieth = 1; twentieth <= 20; ++twentieth) buckets.push_back(twentieth / 20.0);
  return buckets;
}

Buckets SizeBuckets() {
  Buckets buckets;
  for (int exponent = 0; exponent <= 17; ++exponent) buckets.push_back(1 << exponent);
  return buckets;
}

template <class Builder>
auto& Register(Builder builder, prometheus::Registry* registry, const MetricText& text) {
  return builder.Name(text.name).Help(text.help).Register(*registry);
}

}  // namespace

Counter::Counter(prometheus::Registry* registry, const MetricText& text, const MetricLabel& label)
    : SeriesByLabel(Register(prometheus::BuildCounter(), registry, text), label) {}

Gauge::Gauge(prometheus::Registry* registry, const MetricText& text, const MetricLabel& label)
    : SeriesByLabel(Register(prometheus::BuildGauge(), registry, text), label) {}

Histogram::Histogram(prometheus::Registry* registry, const MetricText& text,
                     const MetricLabel& label, const std::vector<double>& buckets)
    : SeriesByLabel(Register(prometheus::BuildHistogram(), registry, text), label, buckets) {}

LatencyHistogram::LatencyHistogram(prometheus::Registry* registry, const MetricText& text,
                                   const MetricLabel& label)
    : Histogram(registry, text, label, LatencyBuckets()) {}

RatioHistogram::RatioHistogram(prometheus::Registry* registry, const MetricText& text,
                               const MetricLabel& label)
    : Histogram(registry, text, label, RatioBuckets()) {}

SizeHistogram::SizeHistogram(prometheus::Registry* registry, const MetricText& text,
                             const MetricLabel& label)
    : Histogram(registry, text, label, SizeBuckets()) {}

Info::Info(prometheus::Registry* registry, const MetricText& text, const MetricLabel&)
    : family_(Register(prometheus::BuildGauge(), registry, text)) {}

}  // namespace sparsed
