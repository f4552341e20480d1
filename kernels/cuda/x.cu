__global__ void k(float* x) { x[0] = 1; }
void Launch(float* x) { k<<<1, 1>>>(x); }
