// Depthwise convolution of bf16 pictures in the channels-last layout, for inference.
//
// A thread computes COLUMNS neighbouring outputs of eight channels. Inputs and outputs are vectors
// of eight channels, [picture][row][column][channels / 8]; weights are [row][column][channels / 8].
// Sums are in single precision. The file needs no headers, so that it compiles in a moment.

#define COLUMNS 4

typedef uint4 Eight;

__device__ __forceinline__ void unpack(Eight packed, float *values) {
    unsigned int pairs[4] = {packed.x, packed.y, packed.z, packed.w};
#pragma unroll
    for (int pair = 0; pair < 4; ++pair) {
        values[2 * pair] = __uint_as_float(pairs[pair] << 16);
        values[2 * pair + 1] = __uint_as_float(pairs[pair] & 0xffff0000u);
    }
}

// to the nearest bf16, ties to even; NaN stays NaN
__device__ __forceinline__ unsigned int rounded(float value) {
    unsigned int bits = __float_as_uint(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (bits >> 16) | 0x40u;
    return (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
}

template <int SIDE, int STRIDE>
__device__ __forceinline__ void convolve(
    const Eight *__restrict__ inputs, const Eight *__restrict__ weights, Eight *__restrict__ outputs,
    int height, int width, int out_height, int out_width, int groups, int pad_rows, int pad_columns,
    long long threads) {
    long long rest = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (rest >= threads) return;
    int strips = (out_width + COLUMNS - 1) / COLUMNS;
    int group = (int)(rest % groups);
    rest /= groups;
    int first = (int)(rest % strips) * COLUMNS;
    rest /= strips;
    int out_row = (int)(rest % out_height);
    long long picture = rest / out_height;

    float sums[COLUMNS][8] = {};
#pragma unroll 1
    for (int down = 0; down < SIDE; ++down) {
        int row = out_row * STRIDE - pad_rows + down;
        if (row < 0 || row >= height) continue;
        float weight[SIDE][8];
#pragma unroll
        for (int right = 0; right < SIDE; ++right)
            unpack(weights[(down * SIDE + right) * groups + group], weight[right]);
        const Eight *line = inputs + (picture * height + row) * width * groups + group;
#pragma unroll
        for (int step = 0; step < (COLUMNS - 1) * STRIDE + SIDE; ++step) {
            int column = first * STRIDE - pad_columns + step;
            if (column < 0 || column >= width) continue;
            float value[8];
            unpack(line[(long long)column * groups], value);
#pragma unroll
            for (int output = 0; output < COLUMNS; ++output) {
                int right = step - output * STRIDE;
                if (right < 0 || right >= SIDE) continue;
#pragma unroll
                for (int channel = 0; channel < 8; ++channel)
                    sums[output][channel] += value[channel] * weight[right][channel];
            }
        }
    }
    Eight *written =
        outputs + ((picture * out_height + out_row) * out_width + first) * groups + group;
#pragma unroll
    for (int output = 0; output < COLUMNS; ++output) {
        if (first + output >= out_width) continue;
        unsigned int pairs[4];
#pragma unroll
        for (int pair = 0; pair < 4; ++pair)
            pairs[pair] = rounded(sums[output][2 * pair]) | rounded(sums[output][2 * pair + 1]) << 16;
        Eight packed = {pairs[0], pairs[1], pairs[2], pairs[3]};
        written[(long long)output * groups] = packed;
    }
}

#define KERNEL(SIDE, STRIDE)                                                                       \
    extern "C" __global__ void depthwise_##SIDE##_##STRIDE(                                        \
        const Eight *__restrict__ inputs, const Eight *__restrict__ weights,                       \
        Eight *__restrict__ outputs, int height, int width, int out_height, int out_width,         \
        int groups, int pad_rows, int pad_columns, long long threads) {                            \
        convolve<SIDE, STRIDE>(                                                                    \
            inputs, weights, outputs, height, width, out_height, out_width, groups, pad_rows,      \
            pad_columns, threads);                                                                 \
    }

KERNEL(3, 1)
KERNEL(3, 2)
KERNEL(5, 1)
KERNEL(5, 2)
KERNEL(7, 1)
