// SPDX-License-Identifier: Apache-2.0
// Exposition: a parsed scrape of /metrics.
//   ASSERT_OK_AND_ASSIGN(Exposition metrics, Exposition::Parse(body));
//   EXPECT_EQ(metrics.Value("sparsed_requests_total", "code", "OK"), 3);
//   EXPECT_EQ(metrics.Count("sparsed_step_seconds", "phase", "sparse"), 12);
// A series that is not there reads as NaN, which equals nothing.
#pragma once

#include <limits>
#include <map>
#include <sstream>
#include <string>
#include <utility>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/numbers.h>

namespace sparsed::testing {

class Exposition {
 public:
  // INVALID_ARGUMENT quotes the first line that is neither a comment nor `series value`, or that
  // comes before the type of its family.
  static absl::StatusOr<Exposition> Parse(const std::string& text) {
    Exposition exposition;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      if (line.empty()) continue;
      if (!exposition.ParseLine(line)) return absl::InvalidArgumentError("bad line: " + line);
    }
    return exposition;
  }

  // The value of a counter or gauge.
  double Value(const std::string& name, const std::string& label = "",
               const std::string& value = "") const {
    const std::string labels = label.empty() ? "" : "{" + label + "=\"" + value + "\"}";
    const auto found = series_.find(name + labels);
    return found == series_.end() ? std::numeric_limits<double>::quiet_NaN() : found->second;
  }

  // Number and sum of a histogram's observations.
  double Count(const std::string& name, const std::string& label = "",
               const std::string& value = "") const {
    return Value(name + "_count", label, value);
  }
  double Sum(const std::string& name, const std::string& label = "",
             const std::string& value = "") const {
    return Value(name + "_sum", label, value);
  }

  // "counter", "gauge", "histogram", or empty if the family is not there.
  std::string Type(const std::string& family) const {
    const auto found = types_.find(family);
    return found == types_.end() ? "" : found->second;
  }

  // Every series as written, with its value.
  const std::map<std::string, double>& series() const { return series_; }

 private:
  bool ParseLine(const std::string& line) {
    std::istringstream words(line);
    if (line[0] == '#') {
      std::string hash, kind, family, type;
      words >> hash >> kind >> family >> type;
      if (kind == "TYPE") types_[family] = type;
      return kind == "TYPE" || kind == "HELP";
    }
    const size_t space = line.rfind(' ');
    double value = 0;
    if (space == std::string::npos || !absl::SimpleAtod(line.substr(space + 1), &value)) {
      return false;
    }
    const std::string series = line.substr(0, space);
    series_[series] = value;
    return HasType(series.substr(0, series.find('{')));
  }

  bool HasType(const std::string& name) const {
    for (const char* suffix : {"", "_bucket", "_sum", "_count"}) {
      const std::string end = suffix;
      if (name.size() > end.size() && name.substr(name.size() - end.size()) == end &&
          types_.count(name.substr(0, name.size() - end.size())) > 0) {
        return true;
      }
    }
    return false;
  }

  std::map<std::string, double> series_;
  std::map<std::string, std::string> types_;
};

}  // namespace sparsed::testing
