// SPDX-License-Identifier: Apache-2.0
#include "engine/model/family.h"
#include "engine/model/llada.h"

namespace sparsed {
namespace {
const Family kFamilies[] = {
    {"llada", LoadLlada},
};
}  // namespace

absl::Span<const Family> Families() { return kFamilies; }

}  // namespace sparsed
