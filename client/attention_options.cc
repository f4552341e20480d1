// SPDX-License-Identifier: Apache-2.0
#include "client/attention_options.h"

#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include <absl/strings/str_cat.h>

#include "client/utf8.h"

namespace sparsed::client {
namespace {

constexpr const char* kGroup = "Attention";
constexpr const char* kMaskGroup = "Attention: which blocks are kept";
constexpr const char* kOrderGroup = "Attention: order and shape of the tokens";
constexpr const char* kScheduleGroup = "Attention: when masks are made";

// "21x32x48": three whole numbers.
std::optional<v1::Extent3> ParseExtent(std::string_view text) {
  uint32_t sizes[3] = {};
  const char* next = text.data();
  const char* const end = next + text.size();
  for (int i = 0; i < 3; ++i) {
    if (i > 0 && (next == end || *next++ != 'x')) return std::nullopt;
    const auto [stop, error] = std::from_chars(next, end, sizes[i]);
    if (error != std::errc()) return std::nullopt;
    next = stop;
  }
  if (next != end) return std::nullopt;
  v1::Extent3 extent;
  extent.set_t(sizes[0]);
  extent.set_h(sizes[1]);
  extent.set_w(sizes[2]);
  return extent;
}

std::string CheckExtent(const std::string& text) {
  if (ParseExtent(text)) return "";
  return absl::StrCat("'", text, "' is not TxHxW, three whole numbers such as 21x32x48");
}

// Why `text` cannot go into a request, or "" if it can.
std::string CheckText(const std::string& text) {
  return std::string(CheckUtf8(text, "the value").message());
}

// Adds options to one group of a command's help.
class Group {
 public:
  Group(CLI::App& command, v1::GenerateRequest& request, const char* name)
      : command_(command), request_(request), name_(name) {}

  template <class Value>
  void Number(const char* option, void (v1::Attention::*set)(Value), const char* help) {
    command_
        .add_option_function<Value>(
            option,
            [&request = request_, set](Value value) { (request.mutable_attention()->*set)(value); },
            help)
        ->group(name_);
  }

  void Name(const char* option, std::string* (v1::Attention::*change)(), const char* help) {
    command_
        .add_option_function<std::string>(
            option,
            [&request = request_, change](const std::string& name) {
              *(request.mutable_attention()->*change)() = name;
            },
            help)
        ->check(CheckText, "")
        ->type_name("NAME")
        ->group(name_);
  }

  void Extent(const char* option, v1::Extent3* (v1::Attention::*change)(), const char* help) {
    command_
        .add_option_function<std::string>(
            option,
            [&request = request_, change](const std::string& text) {
              *(request.mutable_attention()->*change)() = ParseExtent(text).value_or(v1::Extent3());
            },
            help)
        ->check(CheckExtent, "")
        ->type_name("TxHxW")
        ->group(name_);
  }

  void Off(const char* option, void (v1::Attention::*set)(bool), const char* help) {
    command_
        .add_flag_callback(
            option, [&request = request_, set] { (request.mutable_attention()->*set)(false); },
            help)
        ->group(name_);
  }

 private:
  CLI::App& command_;
  v1::GenerateRequest& request_;
  const char* const name_;
};

}  // namespace

void AddAttentionOptions(CLI::App& command, v1::GenerateRequest& request) {
  using A = v1::Attention;
  Group basics(command, request, kGroup);
  basics.Name("--preset", &A::mutable_preset, "Attention preset; `sparsectl model` lists them");
  basics.Number("--block-tokens", &A::set_block_tokens,
                "Tokens per attention block: 32, 64, 128 or 256");
  basics.Off("--no-guard", &A::set_guard, "Stay sparse even where dense attention would be faster");

  Group mask(command, request, kMaskGroup);
  mask.Name("--score", &A::mutable_score,
            "How blocks are scored: none, pooled_mass, mean or mean_cov");
  mask.Name("--select", &A::mutable_select,
            "Which are kept: none, top_ratio, top_ratio_compat, top_k or mass");
  mask.Number("--ratio", &A::set_ratio, "Share of key blocks each query block keeps (top_*)");
  mask.Number("--mass", &A::set_mass, "Share of the scores' mass each query block keeps (mass)");
  mask.Number("--min-retained-mass", &A::set_min_retained_mass,
              "Keep more blocks until they hold this share of the mass");
  mask.Number("--relevant-share", &A::set_relevant_share,
              "Share of the query blocks that keep more than their best block: what the answer "
              "depends on");
  mask.Name("--prior", &A::mutable_prior, "Blocks kept in any case: none, sink_window or sta");
  mask.Number("--sink-blocks", &A::set_sink_blocks, "First key blocks that are kept (sink_window)");
  mask.Number("--window-blocks", &A::set_window_blocks,
              "Key blocks kept to either side of the own one (sink_window)");
  mask.Extent("--sta-window", &A::mutable_sta_window,
              "Tiles kept around the own one, in time, height and width (sta)");

  Group order(command, request, kOrderGroup);
  order.Name("--reorder", &A::mutable_reorder,
             "How tokens are ordered: none, norm_k, norm_qk or fractal");
  order.Number("--sort-blocks", &A::set_sort_blocks,
               "Window in blocks inside which tokens are sorted; 0 is all (norm_*)");
  order.Extent("--grid", &A::mutable_grid,
               "The canvas as a video, in tokens of time, height and width (fractal, sta)");

  Group schedule(command, request, kScheduleGroup);
  schedule.Number("--skip", &A::set_skip, "Share of first steps that run dense");
  schedule.Number("--refresh-every", &A::set_refresh_every,
                  "Make a new mask every so many steps; 0 makes one");
}

}  // namespace sparsed::client
