#include "tests/support/gpu.h"
namespace sparsed { class CudaX : public testing::GpuTest {}; TEST_F(CudaX, A) { EXPECT_TRUE(true); } }
