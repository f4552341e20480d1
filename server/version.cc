// SPDX-License-Identifier: Apache-2.0
#include "server/version.h"

namespace sparsed {

const char* ServerVersion() { return SPARSED_VERSION; }

}  // namespace sparsed
